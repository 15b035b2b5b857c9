//! The log on stderr: lines for people, or JSON on request.

use crate::args::LogArgs;
use std::fmt;
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The target of what this program says to its user. Filters match prefixes, so it must not be one
/// of the names of other crates.
pub(crate) const SAY: &str = "lily::say";

/// Starts logging; `default` is the filter of a command that says nothing else.
pub(crate) fn start(args: &LogArgs, default: &str) {
    let filter = args.log.as_deref().filter(|text| !text.is_empty()).unwrap_or(default);
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        // A failure to write to stderr would be reported on stderr, by a macro that panics then.
        .log_internal_errors(false);
    if args.log_json {
        log.json().init();
    } else {
        let lines = Lines(tracing_subscriber::fmt::format().with_target(false));
        log.with_ansi(std::io::stderr().is_terminal()).event_format(lines).init();
    }
}

/// Checks a filter. A word alone must be a level: anything else would be taken for the name of a
/// module and silently log nothing.
pub(crate) fn check_filter(text: &str) -> Result<String, String> {
    for part in text.split(',').filter(|part| !part.contains(['=', '['])) {
        if !part.is_empty() && part.trim().parse::<LevelFilter>().is_err() {
            return Err(format!(
                "`{part}` is not one of off, error, warn, info, debug, trace, or TARGET=LEVEL"
            ));
        }
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// What this program says to its user stands for itself; all else has a time and a level.
struct Lines(Format<Full>);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if *metadata.level() != Level::INFO || metadata.target() != SAY {
            return self.0.format_event(context, writer, event);
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::check_filter;

    #[test]
    fn filters_are_levels_or_targets_with_levels() {
        for good in ["warn", "debug", "off", "warn,lily_engine=debug", "lily=trace", ""] {
            assert!(check_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "warn,everything", "lily=loud"] {
            assert!(check_filter(bad).is_err(), "{bad}");
        }
    }
}
