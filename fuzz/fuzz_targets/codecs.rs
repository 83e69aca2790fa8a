#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| transcript_redb_fuzz::codecs(data));
