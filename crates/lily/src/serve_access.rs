//! Who may use the server, from the command line.

use crate::args::ServeArgs;
use anyhow::{Context, Result, bail};
use lily_server::ServerConfig;
use std::net::IpAddr;

/// Shorter keys are guessed.
const KEY_BYTES_MIN: usize = 8;
const KEY_BYTES_MAX: usize = 1_024;
const KEY_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Fills in keys, origins and names; `address` is where the server listens.
///
/// # Errors
/// A key file that cannot be read, a key or an origin that is none, and an address that others
/// reach without a key.
pub(crate) fn apply(args: &ServeArgs, address: IpAddr, config: &mut ServerConfig) -> Result<()> {
    let mut keys = args.api_key.clone();
    if let Some(path) = &args.api_key_file {
        let size = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        if size > KEY_FILE_BYTES_MAX {
            bail!("{} is larger than 1 MiB; a key file has one key a line", path.display());
        }
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let lines = text.lines().map(str::trim);
        keys.extend(lines.filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned));
        if keys.is_empty() {
            bail!("{} holds no key; write one a line", path.display());
        }
    }
    for key in &keys {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len())
            || !key.bytes().all(|b| b.is_ascii_graphic())
        {
            bail!(
                "an API key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} visible ASCII characters, but \
                 one of those given has not; make one with `openssl rand -hex 24`"
            );
        }
    }
    if keys.is_empty() && !address.is_loopback() && !args.allow_anyone {
        bail!(
            "{address} is not only this machine's: everyone who reaches it could use the model; \
             give --api-key-file FILE, or --allow-anyone if that is meant"
        );
    }
    for origin in &args.cors_origin {
        check_origin(origin)?;
    }
    // A page of the web can reach a loopback address by a name of its own; see `ServerConfig`.
    if address.is_loopback() && keys.is_empty() {
        config.hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        config.hosts.push(args.host.clone());
        config.hosts.push(address.to_string());
        config.hosts.extend(args.allow_host.iter().cloned());
    }
    config.api_keys = keys;
    config.cors_origins.clone_from(&args.cors_origin);
    Ok(())
}

fn check_origin(origin: &str) -> Result<()> {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_origin = rest.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
    });
    if origin != "*" && !is_origin {
        bail!(
            "--cors-origin `{origin}` is no origin; write it like https://app.example or \
             http://localhost:3000, without a path, or `*`"
        );
    }
    Ok(())
}
