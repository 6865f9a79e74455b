//! Panels: packing and unpacking of rows.

use tabla_core::dtype::DType;
#[cfg(target_arch = "x86_64")]
use tabla_cpu::internals::FLOATS;
use tabla_cpu::internals::{CHUNK_BYTES, Groups, ROWS, Unpack, layout};
use tabla_quant::{CHUNK, Matrix, Scales};

#[test]
fn packed_rows_round_trip() {
    let types = (0..64).filter_map(DType::from_gguf);
    let layouts = types.filter_map(layout);
    #[cfg(target_arch = "x86_64")]
    let layouts = layouts.chain([&FLOATS]);
    let layouts: Vec<_> = layouts.collect();
    assert!(layouts.len() > 10, "found only {} formats", layouts.len());
    for layout in layouts {
        let cols = 3 * layout.columns;
        assert!(layout.row_bytes(CHUNK.max(layout.columns)) <= CHUNK_BYTES);
        for count in [ROWS, 5] {
            let bytes = layout.row_bytes(cols);
            let row = |row: usize| -> Vec<u8> {
                let byte = |i: usize| u8::try_from((row * 89 + i * 37 + i / 7) % 251);
                (0..bytes).map(|i| byte(i).expect("a byte")).collect()
            };
            let rows: Vec<_> = (0..count).map(row).collect();
            let lanes: Vec<_> = rows.iter().map(|row| &row[..]).collect();
            let panel_bytes = layout.panel_bytes(cols);
            // The second of two panels.
            let mut panels = vec![0; 2 * panel_bytes];
            layout.pack(&lanes, &mut panels[panel_bytes..]);
            let matrix = Matrix {
                bytes: &panels,
                scales: None,
                rows: ROWS + count,
                cols,
            };
            for (i, row) in rows.iter().enumerate() {
                let columns = layout.columns..cols;
                let mut to = vec![0; bytes];
                let found = layout.unpack(&matrix, ROWS + i, columns, &mut to);
                assert_eq!(
                    found,
                    &row[layout.bytes..],
                    "{layout:?}, row {i} of {count}"
                );
            }
        }
    }
}

/// Scales of two rows with two groups of 32 columns.
const SCALES: Scales<'_> = Scales {
    float: DType::Bf16,
    bytes: &[0, 1, 2, 3, 4, 5, 6, 7],
    biases: &[10, 11, 12, 13, 14, 15, 16, 17],
    group: [1, 32],
};

#[test]
fn matches_panel_computed_by_hand() {
    // Columns 0 to 15 of a row count up; all others hold the row number.
    let unpack: Unpack = |_, row, _, out| {
        let row = i8::try_from(row).expect("two rows");
        out.q = std::array::from_fn(|i| i8::try_from(i).ok().filter(|i| *i < 16).unwrap_or(row));
    };
    let matrix = Matrix {
        bytes: &[],
        scales: Some(SCALES),
        rows: 2,
        cols: 64,
    };
    let groups = Groups::of(4, &SCALES, 64).expect("these scales have panels");
    assert_eq!(groups.panel_bytes(64), 2 * (4 * 64 + 2 * 32));
    let mut panel = vec![0; groups.panel_bytes(64)];
    groups.pack(unpack, &matrix, 0..2, &mut panel);
    let (first, second) = panel.split_at(groups.bytes());
    // The words of columns 0 to 3 and 12 to 15, each combined with those 16 columns further on.
    assert_eq!(
        first[..9],
        [0x00, 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13, 0]
    );
    assert_eq!(
        first[192..][..8],
        [0x0c, 0x0d, 0x0e, 0x0f, 0x1c, 0x1d, 0x1e, 0x1f]
    );
    assert_eq!(
        second[64..][..8],
        [0x00, 0x00, 0x00, 0x00, 0x11, 0x11, 0x11, 0x11]
    );
    assert_eq!(first[256..][..5], [0, 1, 4, 5, 0]);
    assert_eq!(second[256..][..4], [2, 3, 6, 7]);
    assert_eq!(first[288..][..4], [10, 11, 14, 15]);
    assert_eq!(second[288..][..4], [12, 13, 16, 17]);
}

#[test]
fn unsupported_scales_have_no_panels() {
    let groups_of = |scales: Scales<'_>, cols| Groups::of(8, &scales, cols);
    assert!(groups_of(SCALES, 64).is_some());
    assert!(groups_of(SCALES, 48).is_none());
    let float = DType::E8m0;
    assert!(groups_of(Scales { float, ..SCALES }, 64).is_none());
    for group in [[2, 32], [1, 16]] {
        assert!(groups_of(Scales { group, ..SCALES }, 64).is_none());
    }
    assert!(
        groups_of(
            Scales {
                biases: &[],
                ..SCALES
            },
            64
        )
        .is_none()
    );
}
