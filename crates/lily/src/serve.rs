//! The API server: start, say where, drain on Ctrl-C.

use crate::accelerator;
use crate::args::{Compute, ServeArgs, VERSION};
use crate::load;
use crate::output;
use crate::serve_access;
use anyhow::{Context, Result, bail};
use lily_engine::{Engine, EngineConfig, EngineEnd, Sampling};
use lily_server::{ServerConfig, Trace, serve};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinError;

/// How long clients may take to read the end of their streams when the engine has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Tokens of a prefill chunk: other requests decode between two chunks.
const PREFILL_CHUNK_TOKENS: usize = 256;

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    // One thread serves all connections: a token costs it some 50 us, and with a second one every
    // token would wake both. Parsing and rendering have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    // A port that is taken and a key that is none are found before minutes of loading.
    let listener = runtime.block_on(bind(&args.host, args.port))?;
    let address = listener.local_addr().context("the listening address is unknown")?;
    let mut server = ServerConfig::new("");
    serve_access::apply(args, address.ip(), &mut server)?;
    server.trace = args.trace.as_deref().map(Trace::open).transpose()?;

    let max_running = usize::from(args.max_running);
    let chunk = accelerator::chunk_tokens(args.model.device, PREFILL_CHUNK_TOKENS);
    let loaded = load::load(&args.model, Compute::Int8, chunk + max_running)?;
    let mut text = load::need_text(loaded.text, &loaded.name)?;
    for defaults in [&mut text.defaults.thinking, &mut text.defaults.plain] {
        let given = &args.sampling;
        *defaults = Sampling {
            temperature: given.temp.or(defaults.temperature),
            top_k: given.top_k.or(defaults.top_k),
            top_p: given.top_p.or(defaults.top_p),
            min_p: given.min_p.or(defaults.min_p),
            seed: given.seed.or(defaults.seed),
            ..defaults.clone()
        };
    }
    let config = EngineConfig {
        context_tokens: load::context_tokens(args.ctx, &loaded.shape)?,
        max_running,
        max_queued: args.max_queued.into(),
        prefill_chunk_tokens: chunk,
        cache_bytes: accelerator::cache_bytes(args.model.device, args.cache_ram),
    };
    let engine = Engine::start(loaded.model, text, config);
    let name = args.name.clone().unwrap_or_else(|| loaded.name.clone());
    let server = ServerConfig {
        system_fingerprint: format!("lily-{VERSION}-{name}-{:x}", loaded.weight_bytes),
        log_prompts: args.log_prompts,
        deadline: args.deadline.map(Duration::from_secs),
        model_id: name.clone(),
        ..server
    };
    // Before anybody can know that this runs; until then Ctrl-C simply ends the program.
    let signals = runtime.block_on(async { Signals::new() })?;
    let has_keys = !server.api_keys.is_empty();
    let trace = server.trace.clone();
    announce(args, address, &engine, &name, has_keys)?;
    let served = runtime.block_on(serve_until_stopped(listener, engine, server, signals));
    // Whatever still runs then was told to stop.
    runtime.shutdown_background();
    if let Some(trace) = trace {
        trace.flush(LAST_WORDS);
    }
    served
}

async fn bind(host: &str, port: u16) -> Result<TcpListener> {
    TcpListener::bind((host, port)).await.with_context(|| {
        format!("cannot listen on {host}:{port}; is it in use? Choose another with --port")
    })
}

fn announce(
    args: &ServeArgs,
    address: SocketAddr,
    engine: &Engine,
    name: &str,
    has_keys: bool,
) -> Result<()> {
    let url = format!("http://{address}");
    output::status(&format!("listening on {url}"));
    output::status(&format!(
        "  model {name}, context {} tokens; OpenAI clients: base URL {url}/v1, {}",
        engine.context_tokens(),
        if has_keys { "one of the API keys" } else { "any API key" }
    ));
    output::status(&format!("  chat in a browser: {url}/"));
    if args.allow_anyone {
        tracing::warn!("everyone who can reach {address} can use it: no key is asked for");
    }
    if args.json {
        let base_url = format!("{url}/v1");
        output::json(&serde_json::json!({"url": url, "base_url": base_url, "model": name}))?;
    }
    Ok(())
}

/// Serves until the first signal, then until the running answers are finished or the second.
async fn serve_until_stopped(
    listener: TcpListener,
    engine: Engine,
    config: ServerConfig,
    mut signals: Signals,
) -> Result<()> {
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        // The sender goes away only with its message sent, or when all is over.
        let _ = stopped.await;
    };
    let mut serving = pin!(serve(listener, engine.clone(), config, shutdown));
    let mut ending = {
        let engine = engine.clone();
        tokio::task::spawn_blocking(move || engine.wait())
    };
    let mut stop = Some(stop);
    loop {
        tokio::select! {
            served = &mut serving => {
                served?;
                check(ending.await)?;
                output::status("stopped");
                return Ok(());
            }
            end = &mut ending, if stop.is_some() => {
                // Waiting clients learn of it, then this ends.
                drop(stop.take());
                let _ = tokio::time::timeout(LAST_WORDS, serving).await;
                return check(end);
            }
            () = signals.next() => {
                let Some(stop) = stop.take() else {
                    output::status("stopping at once");
                    let stopping = tokio::task::spawn_blocking(move || engine.stop());
                    let farewell = async {
                        let _ = stopping.await;
                        let _ = serving.await;
                    };
                    let _ = tokio::time::timeout(LAST_WORDS, farewell).await;
                    return Ok(());
                };
                output::status("finishing the running answers; Ctrl-C again stops at once");
                // Serving may have ended by itself.
                let _ = stop.send(());
            }
        }
    }
}

/// A broken engine is a failure of this program.
fn check(end: Result<EngineEnd, JoinError>) -> Result<()> {
    match end.context("the engine's watcher failed")? {
        EngineEnd::Panicked => bail!("the engine failed unexpectedly; see the log above"),
        EngineEnd::Drained | EngineEnd::Stopped => Ok(()),
    }
}

/// Ctrl-C, or SIGTERM where there is one.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let watch = |kind| signal(kind).context("signals cannot be watched");
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn new() -> Result<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
