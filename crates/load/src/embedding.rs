//! Embedding options of a model's files: pooling, Dense modules, maximum length, prompts.

use super::catalog::Catalog;
use super::hf::RANK;
use crate::arch::{CLASSIFIER, Config, DENSE_MODULES};
use crate::error::{Error, Result, bail};
use crate::exec::Tensors;
use crate::format::Metadata;
use crate::model::{Classifier, DenseModule, Embedding, Pooling};
use crate::plan::builder::Weights;
use crate::quant::{self, Matrix};

/// Reads the embedding options from the metadata.
pub(super) fn read(
    catalog: &Catalog,
    config: &Config,
    classifier: Option<&Classifier>,
) -> Result<Embedding> {
    let (meta, arch) = (&catalog.file().metadata, catalog.arch());
    let name = &config.architecture;
    let key = format!("{name}.pooling_type");
    let types = pooling_types(meta, &key)?;
    let is_reranker = types == [RANK];
    if is_reranker && arch.encoder && classifier.is_none() {
        bail!(
            Format,
            "{key} is {RANK} (reranking), but the file has no classification head: tensor \
             {CLASSIFIER}.weight is missing"
        );
    }
    let strings = |key: &str| {
        let list = meta.strs(&format!("{name}.{key}"))?.unwrap_or_default();
        Ok::<Vec<String>, Error>(list.into_iter().map(str::to_string).collect())
    };
    let pooling = pooling(&types, &key)?;
    let names = strings("embedding_prompt_names")?;
    let texts = strings("embedding_prompt_texts")?;
    if names.len() != texts.len() {
        bail!(
            Format,
            "{name}.embedding_prompt_texts: expected {} texts, got {}",
            names.len(),
            texts.len()
        );
    }
    let default_prompt = meta.str(&format!("{name}.embedding_default_prompt"))?;
    Ok(Embedding {
        dense: dense(catalog, config, pooling.len())?,
        pooling,
        normalize: meta.bool(&format!("{name}.embedding_normalize"))?,
        length: meta.u32(&format!("{name}.embedding_context_length"))?,
        prompts: names.into_iter().zip(texts).collect(),
        default_prompt: default_prompt.map(str::to_string),
        is_reranker,
    })
}

/// Reads `pooling_type`, a number or a list of numbers; empty if it is missing.
fn pooling_types(meta: &Metadata, key: &str) -> Result<Vec<u32>> {
    let is_list = meta.get(key).is_some_and(|value| value.array().is_some());
    if !is_list {
        return Ok(meta.u32(key)?.into_iter().collect());
    }
    let types = meta.u32s(key)?.unwrap_or_default();
    if types.is_empty() {
        bail!(
            Format,
            "{key}: expected a number or numbers, got an empty list"
        );
    }
    Ok(types)
}

/// Converts llama.cpp's `pooling_type`. Lists and the numbers from 5 on are Tabla's own, for safetensors.
fn pooling(types: &[u32], key: &str) -> Result<Vec<Pooling>> {
    let method = |number: &u32| match number {
        1 => Ok(Pooling::Mean),
        2 => Ok(Pooling::Cls),
        3 => Ok(Pooling::Last),
        5 => Ok(Pooling::Max),
        6 => Ok(Pooling::WeightedMean),
        7 => Ok(Pooling::MeanSqrtLength),
        other => bail!(Format, "{key}: unknown pooling type {other}"),
    };
    match types {
        [0 | RANK] => Ok(Vec::new()),
        types => types.iter().map(method).collect(),
    }
}

/// Reads the Dense modules that are computed after pooling; `poolings` is the number of pooling methods.
fn dense(catalog: &Catalog, config: &Config, poolings: usize) -> Result<Vec<DenseModule>> {
    let mut modules = Vec::new();
    if !config.dense.after_pooling {
        return Ok(modules);
    }
    let mut width = config.dim as usize * poolings;
    for (_, name) in DENSE_MODULES {
        let tensor = |part: &str| catalog.find(&format!("{name}.{part}"));
        let Some(weight) = tensor("weight") else {
            break;
        };
        let bias = tensor("bias").map(|bias| decoded(catalog, bias.index));
        let bias = bias.transpose()?;
        let rows = weight.rows as usize;
        let bias = bias.unwrap_or_else(|| vec![0.0; rows]);
        if weight.cols as usize != width || bias.len() != rows {
            bail!(
                Format,
                "tensor {}: shape mismatch: {rows} rows, {} columns and {} numbers in the bias, the pooled vector \
                 has {width} numbers",
                catalog.spelling(&format!("{name}.weight")),
                weight.cols,
                bias.len()
            );
        }
        let key = format!("{}.{name}_activation", config.architecture);
        let tanh = match catalog.file().metadata.str(&key)? {
            None => false,
            Some("tanh") => true,
            Some(other) => bail!(Unsupported, "{key}: unsupported function {other:?}"),
        };
        modules.push(DenseModule {
            weights: decoded(catalog, weight.index)?,
            bias,
            tanh,
        });
        width = rows;
    }
    Ok(modules)
}

/// Decodes a weight, whose size is that of its bytes.
///
/// # Errors
///
/// `Format` if a compiled model has it only in the layout of a device.
fn decoded(catalog: &Catalog, index: u32) -> Result<Vec<f32>> {
    let bytes = catalog.weight(index);
    let mut weights = catalog.weights();
    let weight = weights.nth(index as usize);
    let Some(weight) = weight.filter(|weight| !bytes.is_empty() || weight.rows == 0) else {
        bail!(Format, "weight {index} is not stored as in files");
    };
    let (rows, cols) = (weight.rows as usize, weight.cols as usize);
    let matrix = Matrix {
        bytes,
        scales: catalog.scales(index),
        rows,
        cols,
    };
    let mut all = vec![0.0; rows * cols];
    for (row, out) in all.chunks_exact_mut(cols.max(1)).enumerate() {
        quant::decode_row_of(weight.dtype, &matrix, row, out);
    }
    Ok(all)
}
