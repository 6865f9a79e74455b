//! Searches the weights of a model for values that are not finite.

use super::catalog::Catalog;
use super::options::LoadOptions;
use super::source::{Source, detect, open};
use super::weight::Weight;
use crate::arch::{self, Config};
use crate::error::Result;
use crate::format::Directory;
use crate::quant::{CHUNK, Floats, Ints, Matrix, Visit, visit};
use crate::reserve;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values of a tensor that are NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// Name of the tensor in the files.
    pub tensor: String,
    /// Number of values that are not finite.
    pub count: u64,
    /// Row and column of the first of them.
    pub first: [usize; 2],
    /// The first of them.
    pub value: f32,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tensor,
            count,
            first: [row, column],
            value,
        } = self;
        write!(
            f,
            "tensor {tensor} is not finite: {count} of its values, the first is {value} in row {row}, column {column}"
        )
    }
}

/// Decodes all weights of a model, and returns those with values that are not finite, in the order of
/// the files. Reads every storage type, with its scales.
///
/// # Errors
///
/// As `ModelBuilder::load`, without stage names.
pub fn check_weights(source: &Source) -> Result<Vec<NotFinite>> {
    let model = open(source, detect(source)?)?.uncompiled()?;
    let config = Config::read(&model.file.metadata)?;
    let arch = arch::find(&config.architecture)?;
    let config = config.validate(arch)?;
    let (catalog, _) = Catalog::resolve(model, arch, config, &LoadOptions::default())?;
    Ok(search(&catalog))
}

/// Returns the weights with values that are not finite.
pub(super) fn search(catalog: &Catalog) -> Vec<NotFinite> {
    let file = catalog.file();
    // The elements of a compiled model are in layouts of devices. Those of a file that has changed are others.
    if catalog.model().compiled.is_some() || file.check_unchanged().is_err() {
        return Vec::new();
    }
    // An infinite divisor of a frequency disables the rotation of a pair.
    let is_divisor = |weight: &&Weight| weight.name.starts_with("rope_");
    let weights: Vec<&Weight> = catalog.weights().filter(|w| !is_divisor(w)).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(weight) = weights.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = search_weight(weight, file);
            let mut found = found.lock().expect("searching does not panic");
            found.extend(result.map(|result| (weight.codes.tensor, result)));
        }
    };
    let threads = reserve::threads(0);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be started, the others do its work.
            let thread = reserve::thread("tabla-finite");
            let _ = thread.and_then(|thread| thread.spawn_scoped(scope, work));
        }
        work();
    });
    let mut found = found.into_inner().expect("searching does not panic");
    found.sort_by_key(|(tensor, result)| (*tensor, result.first));
    found.into_iter().map(|(_, result)| result).collect()
}

/// Returns the values of a weight that are not finite, if any.
fn search_weight(weight: &Weight, file: &Directory) -> Option<NotFinite> {
    let matrix = Matrix {
        bytes: weight.codes.bytes(file),
        scales: weight.scales(file),
        rows: weight.rows as usize,
        cols: weight.cols as usize,
    };
    // Types without real numbers have no such values.
    let (count, first, value) = visit(weight.dtype, Search(&matrix))??;
    weight.codes.release(file, 0..matrix.bytes.len());
    Some(NotFinite {
        tensor: weight.tensor(file).to_string(),
        count,
        first,
        value,
    })
}

struct Search<'a>(&'a Matrix<'a>);

impl Visit for Search<'_> {
    /// Number of values, position of the first one, and its value.
    type Out = Option<(u64, [usize; 2], f32)>;

    fn ints<T: Ints>(self) -> Self::Out {
        self.floats::<T>()
    }

    fn floats<T: Floats>(self) -> Self::Out {
        let Self(matrix) = self;
        let mut result: Self::Out = None;
        let mut chunk = [0.0; CHUNK];
        for row in 0..matrix.rows {
            for column in (0..matrix.cols).step_by(CHUNK) {
                T::decode(matrix, row, column, &mut chunk);
                let values = &chunk[..CHUNK.min(matrix.cols - column)];
                let bad = values.iter().filter(|x| !x.is_finite()).count() as u64;
                let mut columns = (column..).zip(values);
                if let Some((count, _, _)) = &mut result {
                    *count += bad;
                } else if let Some((column, value)) = columns.find(|(_, x)| !x.is_finite()) {
                    result = Some((bad, [row, column], *value));
                }
            }
        }
        result
    }
}
