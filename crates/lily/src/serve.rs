//! The API server: start, say where, drain on Ctrl-C.

use crate::args::{Compute, ServeArgs, VERSION};
use crate::load;
use crate::output;
use anyhow::{Context, Result, bail};
use lily_engine::{Engine, EngineConfig, EngineEnd, Sampling};
use lily_server::{ServerConfig, serve};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long clients may take to read the end of their streams when the engine has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Tokens of a prefill chunk: other requests decode between two chunks.
const PREFILL_CHUNK_TOKENS: usize = 256;

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    // A port that is taken is found before minutes of loading.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    let listener = runtime.block_on(bind(&args.host, args.port))?;

    let max_running = usize::from(args.max_running);
    let loaded = load::load(&args.model, Compute::Int8, PREFILL_CHUNK_TOKENS + max_running)?;
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
    let context_tokens = load::context_tokens(args.ctx, &loaded.shape)?;
    let config = EngineConfig {
        context_tokens,
        max_running,
        max_queued: args.max_queued.into(),
        prefill_chunk_tokens: PREFILL_CHUNK_TOKENS,
    };
    let engine = Engine::start(loaded.model, text, config);
    let name = args.name.clone().unwrap_or_else(|| loaded.name.clone());
    let server = ServerConfig {
        system_fingerprint: format!("lily-{VERSION}-{name}-{:x}", loaded.weight_bytes),
        log_prompts: args.log_prompts,
        deadline: args.deadline.map(Duration::from_secs),
        ..ServerConfig::new(&name)
    };
    runtime.block_on(serve_until_stopped(args, listener, engine, server, context_tokens))
}

async fn bind(host: &str, port: u16) -> Result<TcpListener> {
    TcpListener::bind((host, port)).await.with_context(|| {
        format!("cannot listen on {host}:{port}; is it in use? Choose another with --port")
    })
}

async fn serve_until_stopped(
    args: &ServeArgs,
    listener: TcpListener,
    engine: Engine,
    config: ServerConfig,
    context_tokens: usize,
) -> Result<()> {
    let address = listener.local_addr().context("the listening address is unknown")?;
    let name = config.model_id.clone();
    eprintln!("listening on http://{address}");
    eprintln!(
        "  model {name}, context {context_tokens} tokens; OpenAI clients: base URL http://{address}/v1, any API key"
    );
    if !address.ip().is_loopback() {
        eprintln!(
            "  warning: everyone who can reach {address} can use it; there is no authentication"
        );
    }
    if args.json {
        let url = format!("http://{address}");
        output::json(
            &serde_json::json!({"url": url, "base_url": format!("{url}/v1"), "model": name}),
        )?;
    }

    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(watch_signals(engine.clone(), stop));
    let mut ended = {
        let engine = engine.clone();
        tokio::task::spawn_blocking(move || engine.wait())
    };
    let shutdown = async {
        // The sender only goes away with its message sent.
        let _ = stopped.await;
    };
    let mut serving = pin!(serve(listener, engine.clone(), config, shutdown));
    tokio::select! {
        served = &mut serving => served?,
        end = &mut ended => {
            let end = end.context("the engine's watcher failed")?;
            // Open streams still have to hear how they ended.
            let _ = tokio::time::timeout(LAST_WORDS, &mut serving).await;
            if end == EngineEnd::Panicked {
                bail!("the engine failed unexpectedly; see the log above");
            }
        }
    }
    eprintln!("stopped");
    Ok(())
}

/// The first signal drains, the second stops at once.
async fn watch_signals(engine: Engine, stop: oneshot::Sender<()>) {
    signal().await;
    eprintln!("finishing the running answers; press Ctrl-C again to stop at once");
    // Serving may have ended by itself.
    let _ = stop.send(());
    signal().await;
    eprintln!("stopping at once");
    // Waits for the engine thread, so not on the runtime.
    drop(tokio::task::spawn_blocking(move || engine.stop()));
    signal().await;
    std::process::abort();
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
