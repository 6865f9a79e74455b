//! Attention heads that follow the audio, of OpenAI's models.

/// Layers, heads per layer and vocabulary of a decoder.
type Shape = (u32, u32, u32);

/// Layer and head of the alignment heads of each model.
#[rustfmt::skip]
const HEADS: [(Shape, &[(u32, u32)]); 11] = [
    // tiny.en
    ((4, 6, 51864), &[
        (1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4),
    ]),
    // tiny
    ((4, 6, 51865), &[
        (2, 2), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5),
    ]),
    // base.en
    ((6, 8, 51864), &[
        (3, 3), (4, 7), (5, 1), (5, 5), (5, 7),
    ]),
    // base
    ((6, 8, 51865), &[
        (3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6),
    ]),
    // small.en
    ((12, 12, 51864), &[
        (6, 6), (7, 0), (7, 3), (7, 8), (8, 2), (8, 5), (8, 7), (9, 0), (9, 4), (9, 8), (9,
        10), (10, 0), (10, 1), (10, 2), (10, 3), (10, 6), (10, 11), (11, 2), (11, 4),
    ]),
    // small
    ((12, 12, 51865), &[
        (5, 3), (5, 9), (8, 0), (8, 4), (8, 7), (8, 8), (9, 0), (9, 7), (9, 9), (10, 5),
    ]),
    // medium.en
    ((24, 16, 51864), &[
        (11, 4), (14, 1), (14, 12), (14, 14), (15, 4), (16, 0), (16, 4), (16, 9), (17, 12),
        (17, 14), (18, 7), (18, 10), (18, 15), (20, 0), (20, 3), (20, 9), (20, 14), (21,
        12),
    ]),
    // medium
    ((24, 16, 51865), &[
        (13, 15), (15, 4), (15, 15), (16, 1), (20, 0), (23, 4),
    ]),
    // large-v2
    ((32, 20, 51865), &[
        (10, 12), (13, 17), (16, 11), (16, 12), (16, 13), (17, 15), (17, 16), (18, 4), (18,
        11), (18, 19), (19, 11), (21, 2), (21, 3), (22, 3), (22, 9), (22, 12), (23, 5), (23,
        7), (23, 13), (25, 5), (26, 1), (26, 12), (27, 15),
    ]),
    // large-v3
    ((32, 20, 51866), &[
        (7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1),
        (25, 6),
    ]),
    // large-v3-turbo
    ((4, 20, 51866), &[
        (2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14),
    ]),
];

/// Returns the alignment heads of a model: layer and head, in ascending order.
///
/// The shape of the decoder identifies the model. large-v1 has the shape of large-v2, and a fine-tuned
/// model that of its base. Of other shapes, the heads are all those of the upper half of the layers,
/// as in OpenAI's `model.py`.
pub fn alignment_heads(layers: u32, heads: u32, vocab: u32) -> Vec<(u32, u32)> {
    let known = HEADS
        .iter()
        .find(|(shape, _)| *shape == (layers, heads, vocab));
    if let Some((_, list)) = known {
        return list.to_vec();
    }
    let upper = layers / 2..layers;
    upper
        .flat_map(|layer| (0..heads).map(move |head| (layer, head)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_within_their_models() {
        for ((layers, heads, vocab), list) in HEADS {
            assert!(list.is_sorted_by(|a, b| a < b));
            assert!(list.iter().all(|(l, h)| *l < layers && *h < heads));
            assert_eq!(alignment_heads(layers, heads, vocab), *list);
        }
        assert_eq!(alignment_heads(4, 6, 51_864).len(), 8);
        assert_eq!(alignment_heads(32, 20, 51_865).len(), 23);
    }

    #[test]
    fn other_models_use_upper_layers() {
        assert_eq!(alignment_heads(2, 3, 51_866), [(1, 0), (1, 1), (1, 2)]);
        assert_eq!(alignment_heads(3, 1, 51_866), [(1, 0), (2, 0)]);
    }
}
