//! Bytes that nobody wrote on purpose: every prefix that matters, bytes changed all over a header,
//! every value of `config.json` replaced, random headers. Opening may fail; it never panics.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use lily_weights::{Checkpoint, EmbeddedFile, WeightsError};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use support::Files;

fn header_len(file: &[u8]) -> usize {
    usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap()
}

#[test]
fn truncated_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::mlx();
    files.write(dir.path());
    let weights = files.weights();
    let body = 8 + header_len(&weights);
    let mut ends = vec![0, 1, 7, 8, 9, body / 2, body - 1, body, body + 1];
    let mut end = body;
    for tensor in files.tensors.values() {
        end += tensor.bytes.len();
        ends.extend([end - 1, end]);
    }
    assert_eq!(end, weights.len(), "the tensors fill the file");
    ends.pop();
    ends.sort_unstable();
    let file = OpenOptions::new().write(true).open(dir.path().join("model.safetensors")).unwrap();
    for &end in ends.iter().rev() {
        file.set_len(end as u64).unwrap();
        match Checkpoint::open(dir.path()) {
            Err(WeightsError::Damaged { file, .. }) => assert_eq!(file, "model.safetensors"),
            Err(other) => panic!("cut at {end}: {other}"),
            Ok(_) => panic!("cut at {end}: it opened"),
        }
    }
}

#[test]
fn changed_bytes_of_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::mlx();
    files.write(dir.path());
    let weights = files.weights();
    let path = dir.path().join("model.safetensors");
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    let mut refused = 0;
    // A prime step visits digits, names, quotes and braces alike.
    for at in (0..8).chain((8..8 + header_len(&weights)).step_by(89)) {
        for byte in [weights[at] ^ 1, b'9', b'"', 0xff] {
            put(at, byte);
            refused += usize::from(Checkpoint::open(dir.path()).is_err());
        }
        put(at, weights[at]);
    }
    Checkpoint::open(dir.path()).expect("every byte was put back");
    assert!(refused > 500, "a changed header is nearly always refused: {refused}");
}

/// Paths of all values below `value`.
fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        all.push(path.clone());
        paths(value, &path, all);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                below(&i.to_string(), value);
            }
        }
        _ => {}
    }
}

#[test]
fn every_value_of_the_config_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::mlx();
    files.write(dir.path());
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!("x"),
        json!([]),
        json!([[{}]]),
        json!({}),
    ];
    let mut all = Vec::new();
    paths(&files.config, "", &mut all);
    for path in &all {
        for value in &odd {
            let mut config = files.config.clone();
            *config.pointer_mut(path).unwrap() = value.clone();
            std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
            // Most of these are refused; values that nobody reads may be anything.
            let _ = Checkpoint::open(dir.path());
        }
    }
    assert!(all.len() > 80);
}

/// Opens a file of weights in memory. The embedded source wants `'static`: a test may leak a little.
fn open(weights: Vec<u8>) -> Result<Checkpoint, WeightsError> {
    let config: &'static str = Box::leak(Files::hf().config.to_string().into_boxed_str());
    let weights: &'static [u8] = Box::leak(weights.into_boxed_slice());
    Checkpoint::from_embedded(&[
        EmbeddedFile { name: "config.json", bytes: config.as_bytes() },
        EmbeddedFile { name: "model.safetensors", bytes: weights },
    ])
}

fn with_header(header: &[u8], body: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + body, 0);
    file
}

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..70, Just(u64::MAX), Just(1 << 32), Just(1 << 63), any::<u64>()]
}

fn any_entry() -> impl Strategy<Value = Value> {
    let dtype = prop::sample::select(vec!["BF16", "F32", "U32", "U8", "F8_E4M3", "x", ""]);
    let shape = prop::collection::vec(any_size(), 0..10);
    let offsets = prop::collection::vec(any_size(), 0..4);
    (dtype, shape, offsets).prop_map(
        |(dtype, shape, offsets)| json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}),
    )
}

fn any_name() -> impl Strategy<Value = String> {
    let real = prop::sample::select(vec![
        "lm_head.weight",
        "lm_head.scales",
        "model.language_model.embed_tokens.weight",
        "model.visual.patch_embed.proj.weight",
        "mtp.fc.weight",
        "__metadata__",
    ]);
    prop_oneof![real.prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #[test]
    fn random_files(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(open(bytes).is_err());
    }

    #[test]
    fn random_bytes_as_header(header in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(open(with_header(&header, 32)).is_err());
    }

    #[test]
    fn random_entries(
        entries in prop::collection::vec((any_name(), any_entry()), 0..6),
        body in 0_usize..100,
    ) {
        let header: serde_json::Map<String, Value> = entries.into_iter().collect();
        let header = Value::Object(header).to_string();
        prop_assert!(open(with_header(header.as_bytes(), body)).is_err());
    }

    #[test]
    fn any_codes_survive_packing(
        bits in prop::sample::select(lily_weights::quant::affine::BITS.to_vec()),
        codes in prop::collection::vec(any::<u8>(), 128),
    ) {
        use lily_weights::quant::affine::{pack_codes, unpack_codes};
        let mask = u8::try_from((1_u16 << bits) - 1).unwrap();
        let codes: Vec<u8> = codes.iter().map(|code| code & mask).collect();
        let mut unpacked = vec![0; codes.len()];
        unpack_codes(&pack_codes(&codes, bits), bits, &mut unpacked);
        prop_assert_eq!(unpacked, codes);
    }

    /// Half a step of rounding, and up to another at the far end: making one extreme exact changes
    /// the scale. The rest is f32.
    #[test]
    fn encoding_stays_within_a_step(
        bits in prop::sample::select(lily_weights::quant::affine::BITS.to_vec()),
        w in prop::collection::vec(-8_f32..8.0, 64),
    ) {
        let encoded = lily_weights::quant::affine::encode_group(&w, bits);
        for (x, &code) in w.iter().zip(&encoded.codes) {
            let decoded = encoded.scale * f32::from(code) + encoded.bias;
            prop_assert!((decoded - x).abs() <= encoded.scale.abs() * 1.01 + 1e-5);
        }
    }
}
