#![no_main]

use lily_fuzz::check_detokenize;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check_detokenize(bytes));
