//! The sampler against a plain implementation, exact probabilities and bad input.

use super::*;
use proptest::prelude::*;

fn neutral() -> Settings {
    Settings::new(&Sampling::default(), &Sampling::default())
}

/// The documented order, written without any care for speed: full sort, one vector a step.
/// Returns the ids that can be drawn with their probabilities.
fn plain(
    row: &[f32],
    settings: &Settings,
    prompt: &[TokenId],
    answer: &[TokenId],
) -> Vec<(usize, f64)> {
    let mut logits: Vec<f32> = row.to_vec();
    for (id, logit) in logits.iter_mut().enumerate() {
        let id = token_id(id);
        let n = answer.iter().filter(|a| **a == id).count();
        if n > 0 || prompt.contains(&id) {
            let r = settings.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / r } else { *logit * r };
        }
        *logit -= settings.frequency_penalty * n as f32;
        if n > 0 {
            *logit -= settings.presence_penalty;
        }
        for (biased, bias) in &settings.logit_bias {
            if *biased == id {
                *logit += bias;
            }
        }
    }
    let mut sorted: Vec<(usize, f32)> = logits.into_iter().enumerate().collect();
    sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("finite").then(a.0.cmp(&b.0)));
    if settings.temperature == 0.0 {
        return vec![(sorted[0].0, 1.0)];
    }
    if settings.top_k > 0 {
        sorted.truncate(settings.top_k);
    }
    let max = sorted[0].1;
    let weights: Vec<(usize, f64)> = sorted
        .iter()
        .map(|(id, x)| (*id, f64::from(((x - max) / settings.temperature).exp())))
        .collect();
    let sum: f64 = weights.iter().map(|w| w.1).sum();
    let mut before = 0.0;
    let mut kept = Vec::new();
    for (id, weight) in weights {
        if before < f64::from(settings.top_p) * sum || kept.is_empty() {
            kept.push((id, weight));
        }
        before += weight;
    }
    kept.retain(|(_, weight)| *weight >= f64::from(settings.min_p));
    let sum: f64 = kept.iter().map(|w| w.1).sum();
    kept.into_iter().map(|(id, weight)| (id, weight / sum)).collect()
}

/// How often each id comes out of `n` draws.
fn histogram(row: &[f32], settings: &Settings, n: usize) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    let mut row = row.to_vec();
    let mut scratch = Scratch::default();
    for seed in 0..n as u64 {
        let mut sampler = Sampler::new(settings.clone(), Some(seed), &[], row.len());
        let id = sampler.sample(&mut row, &mut scratch).expect("finite logits");
        *counts.entry(id as usize).or_insert(0) += 1;
    }
    counts
}

/// Pearson's statistic against the plain probabilities; ids that cannot be drawn must not be.
fn chi_square(row: &[f32], settings: &Settings, n: usize) -> (f64, usize) {
    let expected = plain(row, settings, &[], &[]);
    let counts = histogram(row, settings, n);
    for id in counts.keys() {
        assert!(expected.iter().any(|(e, _)| e == id), "{id} was filtered out but drawn");
    }
    let statistic = expected
        .iter()
        .map(|(id, p)| {
            let e = p * n as f64;
            let o = *counts.get(id).unwrap_or(&0) as f64;
            (o - e) * (o - e) / e
        })
        .sum();
    (statistic, expected.len() - 1)
}

/// Every id must be expected at least five times for the statistic to follow its distribution.
fn check_distribution(row: &[f32], settings: &Settings) {
    let (statistic, freedom) = chi_square(row, settings, 20_000);
    // Mean plus six standard deviations of chi-square: one false alarm in well over 10^5, and the
    // seeds are fixed.
    let limit = freedom as f64 + 6.0 * (2.0 * freedom as f64).sqrt();
    assert!(statistic <= limit, "{statistic} > {limit} for {settings:?}");
}

#[test]
fn draws_follow_the_probabilities() {
    let row: Vec<f32> = (0..24).map(|i| (i as f32 * 1.7).sin() * 2.0).collect();
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = neutral();
        change(&mut settings);
        settings
    };
    for settings in [
        neutral(),
        with(&|s| s.temperature = 0.6),
        with(&|s| s.temperature = 2.0),
        with(&|s| s.top_k = 7),
        with(&|s| s.top_p = 0.8),
        with(&|s| s.min_p = 0.2),
        with(&|s| (s.temperature, s.top_k, s.top_p, s.min_p) = (0.7, 20, 0.8, 0.05)),
        with(&|s| s.logit_bias = vec![(3, 2.0), (5, -1.0)]),
    ] {
        check_distribution(&row, &settings);
    }
}

#[test]
fn one_seed_gives_draws_that_follow_the_probabilities() {
    let mut row = vec![0.0, 1.0, 2.0, 0.5];
    let expected = plain(&row, &neutral(), &[], &[]);
    let mut sampler = Sampler::new(neutral(), Some(7), &[], 4);
    let mut counts = [0usize; 4];
    for _ in 0..20_000 {
        counts[sampler.sample(&mut row, &mut Scratch::default()).expect("finite") as usize] += 1;
    }
    let statistic: f64 = expected
        .iter()
        .map(|(id, p)| (counts[*id] as f64 - p * 20_000.0).powi(2) / (p * 20_000.0))
        .sum();
    // As above, three degrees of freedom.
    assert!(statistic < 3.0 + 6.0 * 6f64.sqrt(), "{statistic}");
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        (prop_oneof![Just(0.0f32), 0.1f32..3.0], 0usize..40, 0.05f32..=1.0, 0.0f32..0.5),
        (-2.0f32..2.0, -2.0f32..2.0, 0.5f32..2.0),
        prop::collection::vec((0u32..60, -5.0f32..5.0), 0..4),
    )
        .prop_map(
            |((temperature, top_k, top_p, min_p), (presence, frequency, r), logit_bias)| Settings {
                temperature,
                top_k,
                top_p,
                min_p,
                presence_penalty: presence,
                frequency_penalty: frequency,
                repetition_penalty: r,
                logit_bias,
            },
        )
}

proptest! {
    /// What can be drawn is what the plain implementation keeps, up to a token whose cumulated
    /// share equals `top_p` to within rounding, and the row is as before.
    #[test]
    fn agrees_with_the_plain_implementation(
        row in prop::collection::vec(-6.0f32..6.0, 50..60),
        settings in settings(),
        prompt in prop::collection::vec(0u32..60, 0..10),
        answer in prop::collection::vec(0u32..50, 0..10),
        seed in any::<u64>(),
    ) {
        let mut sampler = Sampler::new(settings.clone(), Some(seed), &prompt, row.len());
        for &id in &answer {
            *sampler.n_generated.entry(id).or_insert(0) += 1;
        }
        let mut after = row.clone();
        let id = sampler.sample(&mut after, &mut Scratch::default()).expect("finite");
        prop_assert_eq!(&after, &row);
        let mut loose = settings.clone();
        loose.top_p = (settings.top_p * 1.000_01).min(1.0);
        loose.min_p = settings.min_p * 0.999_99;
        let allowed = plain(&row, &loose, &prompt, &answer);
        prop_assert!(allowed.iter().any(|(a, _)| *a == id as usize), "{} not in {:?}", id, allowed);
    }

    /// The candidates of a full vocabulary and of a top-k that leaves all of them are the same.
    #[test]
    fn nucleus_is_the_shortest_prefix_of_the_order(
        values in prop::collection::vec(0.0f32..1.0, 1..500),
        top_p in 0.01f64..1.0,
    ) {
        let mut candidates: Vec<Ranked> =
            values.iter().enumerate().map(|(index, &value)| Ranked { index, value }).collect();
        let mut sorted = candidates.clone();
        sorted.sort_by(best_first);
        let n = nucleus(&mut candidates, top_p);
        let mut kept = candidates[..n].to_vec();
        kept.sort_by(best_first);
        prop_assert_eq!(&kept[..], &sorted[..n]);
        // Sums in another order differ by rounding only.
        let wanted = top_p * total(&sorted);
        prop_assert!(total(&sorted[..n]) >= wanted - 1e-9);
        prop_assert!(n == 1 || total(&sorted[..n - 1]) <= wanted + 1e-9);
    }
}

#[test]
fn greedy_takes_the_first_of_equals_and_ignores_padding() {
    let greedy = Settings { temperature: 0.0, ..neutral() };
    let mut row = vec![1.0, 5.0, 5.0, 9.0];
    let mut sampler = Sampler::new(greedy, None, &[], 3);
    assert_eq!(sampler.sample(&mut row, &mut Scratch::default()).expect("finite"), 1);
}

#[test]
fn padding_rows_are_never_drawn_even_if_they_are_not_numbers() {
    let mut row = vec![0.0, 0.0, f32::NAN, 50.0];
    let mut sampler = Sampler::new(neutral(), Some(1), &[], 2);
    for _ in 0..200 {
        assert!(sampler.sample(&mut row, &mut Scratch::default()).expect("finite") < 2);
    }
}

#[test]
fn bad_logits_are_an_error() {
    for temperature in [0.0, 1.0] {
        for top_k in [0, 2] {
            let settings = Settings { temperature, top_k, ..neutral() };
            for bad in [f32::NAN, f32::INFINITY] {
                let mut row = vec![0.0, bad, 1.0, 2.0];
                let mut sampler = Sampler::new(settings.clone(), Some(1), &[], 4);
                let error = sampler.sample(&mut row, &mut Scratch::default());
                assert!(error.is_err(), "{bad} at temperature {temperature}");
            }
            let mut row = vec![f32::NEG_INFINITY; 4];
            let mut sampler = Sampler::new(settings.clone(), Some(1), &[], 4);
            assert!(sampler.sample(&mut row, &mut Scratch::default()).is_err());
        }
    }
}

#[test]
fn extreme_values_stay_numbers() {
    let mut row = vec![f32::MAX, f32::MIN, 0.0, f32::NEG_INFINITY];
    for temperature in [f32::MIN_POSITIVE, 1.0, 100.0] {
        let settings = Settings { temperature, top_p: 0.9, min_p: 0.1, ..neutral() };
        let mut sampler = Sampler::new(settings, Some(3), &[], 4);
        assert_eq!(sampler.sample(&mut row, &mut Scratch::default()).expect("finite"), 0);
    }
}

#[test]
fn same_seed_same_draws() {
    let draws = |seed| {
        let mut row: Vec<f32> = (0..300).map(|i| (i as f32).sin()).collect();
        let mut sampler = Sampler::new(neutral(), seed, &[], 300);
        let mut scratch = Scratch::default();
        (0..50).map(|_| sampler.sample(&mut row, &mut scratch).expect("finite")).collect::<Vec<_>>()
    };
    assert_eq!(draws(Some(5)), draws(Some(5)));
    assert_ne!(draws(Some(5)), draws(Some(6)));
    assert_ne!(draws(None), draws(None), "300^50 possibilities");
}

/// The generator is part of the promise that a seed gives the same answer in every release.
#[test]
fn the_generator_does_not_change() {
    let mut row = vec![0.0; 1_000];
    let mut sampler = Sampler::new(neutral(), Some(42), &[], 1_000);
    let mut scratch = Scratch::default();
    let ids: Vec<_> =
        (0..5).map(|_| sampler.sample(&mut row, &mut scratch).expect("finite")).collect();
    assert_eq!(ids, [526, 542, 636, 405, 34]);
}

#[test]
fn requests_override_defaults_and_gaps_are_neutral() {
    let defaults = Sampling { temperature: Some(0.7), top_k: Some(20), ..Sampling::default() };
    let request = Sampling { temperature: Some(0.0), min_p: Some(0.1), ..Sampling::default() };
    let settings = Settings::new(&request, &defaults);
    assert_eq!((settings.temperature, settings.top_k), (0.0, 20));
    assert_eq!((settings.top_p, settings.min_p), (1.0, 0.1));
    assert_eq!((settings.presence_penalty, settings.repetition_penalty), (0.0, 1.0));
}

/// `cargo test --release -p lily-engine speed -- --ignored --nocapture`
#[test]
#[ignore = "measures and asserts nothing"]
fn speed_of_a_full_vocabulary() {
    let mut state = 1u64;
    let mut normal = || {
        let mut sum = -6.0;
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sum += (state >> 40) as f32 / (1u64 << 24) as f32;
        }
        3.0 * sum
    };
    let mut row: Vec<f32> = (0..248_320).map(|_| normal()).collect();
    let recommended = Settings { top_k: 20, top_p: 0.95, ..neutral() };
    let cases = [
        ("greedy", Settings { temperature: 0.0, ..neutral() }),
        ("top-k 20, top-p 0.95", recommended.clone()),
        ("the same with penalties", Settings { presence_penalty: 1.5, ..recommended.clone() }),
        ("top-k 1000", Settings { top_k: 1_000, ..neutral() }),
        ("top-p 0.95 only", Settings { top_p: 0.95, ..neutral() }),
        ("no filter", neutral()),
    ];
    let mut scratch = Scratch::default();
    for (name, settings) in cases {
        let mut sampler = Sampler::new(settings, Some(1), &[], 248_077);
        sampler.n_generated = (0..5_000).map(|id| (id * 7, 1)).collect();
        let start = std::time::Instant::now();
        for _ in 0..200 {
            sampler.sample(&mut row, &mut scratch).expect("finite");
        }
        println!("{name}: {:.0} us", start.elapsed().as_secs_f64() * 1e6 / 200.0);
    }
    let start = std::time::Instant::now();
    for _ in 0..200 {
        crate::logprobs::logprobs(&row[..248_077], 1, 20, &mut scratch.candidates);
    }
    println!("log-probabilities: {:.0} us", start.elapsed().as_secs_f64() * 1e6 / 200.0);
}
