//! A real NATS server.

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// It ends with its owner.
#[derive(Debug)]
pub struct NatsServer {
    address: String,
    child: Child,
    /// Reserves the port: NATS uses it on another address of this machine.
    _port: TcpListener,
}

impl NatsServer {
    /// With an account of its own: `user` and `pa:ss`.
    pub fn start() -> std::io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("127.0.0.2:{}", port.local_addr()?.port());
        Ok(Self { child: spawn(&address)?, address, _port: port })
    }

    pub fn url(&self) -> String {
        format!("nats://user:pa%3Ass@{}", self.address)
    }

    /// Without a farewell.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// It stands still, with its connections open, until it goes on.
    pub fn stand_still(&self, does: bool) -> std::io::Result<()> {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed());
        let signal = if does { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        Ok(rustix::process::kill_process(pid.ok_or(std::io::ErrorKind::NotFound)?, signal)?)
    }

    /// Starts it again.
    pub fn spawn(&mut self) -> std::io::Result<()> {
        self.child = spawn(&self.address)?;
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn spawn(address: &str) -> std::io::Result<Child> {
    let (host, port) = address.split_once(':').unwrap_or((address, "4222"));
    let mut command = Command::new("nats-server");
    command
        .args(["-a", host, "-p", port, "--user", "user", "--pass", "pa:ss"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let missing = |error: std::io::Error| {
        std::io::Error::new(error.kind(), format!("nats-server: {error}; apt-get install nats-server"))
    };
    let mut child = command.spawn().map_err(missing)?;
    while TcpStream::connect(address).is_err() {
        if let Some(status) = child.try_wait()? {
            return Err(std::io::Error::other(format!("nats-server ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}
