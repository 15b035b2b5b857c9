//! Connections: accepted up to a bound, closed when a client neither sends nor reads, drained at the
//! end.

use crate::limits::{CONNECTIONS_MAX, HEAD_READ_TIME_MAX, WRITE_STALL_TIME_MAX};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// Pause after a failed accept, such as with no file descriptor left: trying again at once would
/// only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves connections until `shutdown` resolves, then lets those with a request in progress end.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    shutdown: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_READ_TIME_MAX);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(routes.clone());
        let io = TokioIo::new(Box::pin(patient(stream)));
        let connection = open.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
}

/// A stream that breaks when its client takes nothing for too long.
fn patient(stream: TcpStream) -> TimeoutStream<TcpStream> {
    // Tokens are small and must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_STALL_TIME_MAX));
    stream
}
