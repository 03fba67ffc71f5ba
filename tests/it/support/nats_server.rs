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
    pub fn start() -> std::io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("127.0.0.2:{}", port.local_addr()?.port());
        Ok(Self { child: spawn(&address)?, address, _port: port })
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Without a farewell.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
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
    command.args(["-a", host, "-p", port]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let missing = |error| std::io::Error::other(format!("nats-server: {error}; apt-get install nats-server"));
    let mut child = command.spawn().map_err(missing)?;
    while TcpStream::connect(address).is_err() {
        if let Some(status) = child.try_wait()? {
            return Err(std::io::Error::other(format!("nats-server ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}
