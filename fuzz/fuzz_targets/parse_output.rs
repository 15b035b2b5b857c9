#![no_main]

use lily_fuzz::{Input, check_parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(input) = Input::from_bytes(bytes) {
        check_parse(&input);
    }
});
