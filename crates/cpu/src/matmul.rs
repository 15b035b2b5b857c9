//! Products of activations with weight matrices, straight from the stored layout.
//!
//! A task computes a block of rows for all tokens into a tile of its own and then hands the tile
//! over, so the kernels write to local memory only.
//!
//! # Order of sums
//! What a token gets does not depend on the other tokens of the batch, on the number of threads or
//! on the block of rows a task happened to get, except that batches of up to [`VECTOR_TOKENS_MAX`]
//! tokens sum a row across vector lanes and larger ones across blocks in order (AVX-512 only): the
//! integers inside a block are exact in both, the f32 sum of blocks differs by rounding.

mod float;
mod portable;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use tile::{Method, RowTile, TileScratch};

use crate::split::{Split, Workspaces};
use crate::{Activations, Pool};
use lily_weights::Matrix;
use std::ops::Range;

/// Up to here rows are read once and multiplied with each token in turn; beyond, a panel of rows is
/// unpacked once for all tokens. Eight covers decoding a few sequences and verifying drafts.
pub(crate) const VECTOR_TOKENS_MAX: usize = 8;

/// Bytes of weights of a task: long enough that claiming it costs nothing, short enough that
/// threads finish together.
const TASK_BYTES: usize = 128 << 10;
/// Rows of a task are a multiple of the panel height.
const ROWS_MIN: usize = 16;
/// With many tokens the tile of a task must stay in the second-level cache.
const TILE_BYTES: usize = 256 << 10;

/// One product: `out = x W^T`, or `out += x W^T`.
#[derive(Debug)]
pub struct MatmulJob<'a> {
    /// `[rows, cols]`
    pub weight: Matrix<'a>,
    /// `[n_tokens, rows]`
    pub out: &'a mut [f32],
    /// Add to `out` instead of replacing it.
    pub accumulate: bool,
}

/// Several products with the same activations in one fork-join.
///
/// # Panics
/// If a shape does not fit: shapes come from a verified checkpoint.
pub fn matmul(pool: &Pool, x: &Activations, jobs: &mut [MatmulJob<'_>]) {
    let n_tokens = x.n_tokens();
    let mut tasks: Vec<(usize, Range<usize>)> = Vec::new();
    for (idx, job) in jobs.iter().enumerate() {
        assert_eq!(job.weight.cols, x.cols(), "the matrix takes what the activations give");
        assert_eq!(job.out.len(), n_tokens * job.weight.rows, "out is [n_tokens, rows]");
        let step = rows_per_task(&job.weight, n_tokens, pool.n_threads());
        let rows = job.weight.rows;
        tasks.extend((0..rows).step_by(step).map(|row| (idx, row..(row + step).min(rows))));
    }
    let all_tokens: Vec<u32> = (0..n_tokens).map(crate::moe::index).collect();
    let outs: Vec<(Matrix<'_>, bool, Split<'_, f32>)> = jobs
        .iter_mut()
        .map(|job| (job.weight, job.accumulate, Split::new(&mut *job.out)))
        .collect();
    let scratch = Workspaces::<TileScratch>::default();
    let method = Method::for_batch(n_tokens);
    pool.run(tasks.len(), &|task| {
        let (idx, rows) = &tasks[task];
        let (weight, accumulate, out) = &outs[*idx];
        scratch.with(|scratch| {
            let tile = RowTile { weight, rows: rows.clone(), x, tokens: &all_tokens, method };
            let values = tile.product(scratch);
            for (t, values) in values.chunks_exact(rows.len()).enumerate() {
                let start = t * weight.rows;
                // SAFETY: tasks have disjoint rows of a matrix, and each matrix an output.
                let out = unsafe { out.part(start + rows.start..start + rows.end) };
                if *accumulate {
                    out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
                } else {
                    out.copy_from_slice(values);
                }
            }
        });
    });
}

/// Rows that one task takes of a matrix.
pub(crate) fn rows_per_task(weight: &Matrix<'_>, n_tokens: usize, n_threads: usize) -> usize {
    let row_bytes = (weight.bytes() / weight.rows.max(1)).max(1);
    let by_bytes = TASK_BYTES / row_bytes;
    // Small matrices still give every thread a few tasks.
    let by_threads = weight.rows / (4 * n_threads);
    let by_tile = TILE_BYTES / (size_of::<f32>() * n_tokens.max(1));
    by_bytes.min(by_threads).min(by_tile).max(ROWS_MIN) / ROWS_MIN * ROWS_MIN
}
