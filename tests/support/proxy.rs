//! A proxy in front of a server that can spoil the way to it, switched while a run uses it.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use socket2::{Domain, SockAddr, Socket, Type};

use super::pump::{self, LOOK_EVERY, Line, Mode, Seen};
use super::server::Server;

/// A proxy on a unix socket beside the server's, or on a loopback port.
pub(crate) struct Proxy {
    url: String,
    line: Arc<Line>,
}

impl Proxy {
    /// A proxy on a unix socket.
    pub(crate) fn on_socket(server: &Server) -> Self {
        let path = server.dir().join("proxy.sock");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let address = SockAddr::unix(&path).expect("a short path");
        listener.bind(&address).expect("a socket file");
        Self::serve(server, &listener, format!("unix://{}", path.display()))
    }

    /// A proxy on a free loopback port: the only kind that can reset a connection.
    pub(crate) fn on_port(server: &Server) -> Self {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener.bind(&any.into()).expect("a loopback port");
        let bound = listener.local_addr().expect("its address");
        let port = bound.as_socket().expect("an IP address").port();
        Self::serve(server, &listener, format!("redis://127.0.0.1:{port}"))
    }

    fn serve(server: &Server, listener: &Socket, url: String) -> Self {
        listener.listen(128).expect("to listen");
        let line = Arc::new(Line::default());
        let shared = Arc::clone(&line);
        let listener = listener.try_clone().expect("a second handle");
        let target = server.socket();
        thread::spawn(move || accept_all(&listener, &target, &shared));
        Self { url, line }
    }

    /// The proxy's URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Switches the fault, for open connections too.
    pub(crate) fn set(&self, mode: Mode) {
        self.line.set(mode);
    }

    /// What has gone through so far.
    pub(crate) fn seen(&self) -> Seen {
        self.line.seen()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.line.close();
    }
}

/// Takes connections until the proxy is dropped, each with its own to the server.
fn accept_all(listener: &Socket, target: &Path, line: &Arc<Line>) {
    listener.set_nonblocking(true).expect("a listener");
    while !line.is_closed() {
        let Ok((client, _)) = listener.accept() else {
            // Nobody is there: a listener has no condition to wait for but this.
            thread::sleep(LOOK_EVERY);
            continue;
        };
        client.set_nonblocking(false).expect("a connection");
        line.count_connection();
        let address = SockAddr::unix(target).expect("the server's socket");
        let server = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        // A server that is down: the client sees its connection closed.
        if server.connect(&address).is_ok() {
            pump::connect(&client, &server, line);
        }
    }
}
