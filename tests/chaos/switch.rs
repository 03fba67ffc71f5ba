//! A TCP proxy that leads to one address now and to another later, as a host name does after a failover.

use std::{io, net::SocketAddr};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Switch {
    pub(crate) async fn to(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (target, targets) = watch::channel(Some(target));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, targets.clone()));
            }
        });
        Ok(Self { address, target, task })
    }

    /// Cuts open connections and leads there from now on; `None` refuses connections.
    pub(crate) fn lead(&self, target: Option<SocketAddr>) {
        self.target.send_replace(target);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, mut targets: watch::Receiver<Option<SocketAddr>>) {
    let Some(target) = *targets.borrow_and_update() else { return };
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = targets.changed() => {}
    }
}
