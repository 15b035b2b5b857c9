//! One thread that schedules, samples and streams.
