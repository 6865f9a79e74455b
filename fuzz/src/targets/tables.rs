//! Tables of compiled models with changed numbers: kernels, operands, parameters, grids and stages.

use super::choices::Choices;
use super::forged::{compiled, replay};
use std::ops::Range;
use std::sync::OnceLock;

/// Start of the keys of tables.
const PREFIX: &str = "tabla.tables.cpu.";

/// Places of the numbers of each list.
fn columns() -> &'static [Range<usize>] {
    static COLUMNS: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    COLUMNS.get_or_init(|| {
        let model = compiled();
        let lists = model
            .directory
            .metadata
            .iter()
            .filter(|(key, _)| key.contains(PREFIX));
        let places = lists.filter_map(|(key, value)| {
            let array = value.array()?;
            array.get(0)?.integer::<u32>()?;
            // After the key: the types of the value and of the items, and their number.
            let start = [key.as_bytes(), &9u32.to_le_bytes(), &4u32.to_le_bytes()].concat();
            let at = model
                .bytes
                .windows(start.len())
                .position(|bytes| bytes == start)?;
            let start = at + start.len() + 8;
            Some(start..start + 4 * array.len())
        });
        let places: Vec<_> = places.collect();
        assert!(places.len() > 5, "lists of numbers");
        places
    })
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut forged = compiled().bytes.clone();
    while !choices.is_empty() {
        let column = choices.pick(columns()).clone();
        let mut place = || {
            let at = choices.position() % (column.len() / 4);
            column.start + 4 * at..column.start + 4 * at + 4
        };
        let (to, from) = (place(), place());
        let number = |place: &Range<usize>| {
            let bytes = forged[place.clone()].first_chunk().expect("four bytes");
            u32::from_le_bytes(*bytes)
        };
        let (old, other) = (number(&to), number(&from));
        let new = match choices.below(6) {
            0 => other,
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old.wrapping_mul(2),
            4 => choices.extreme() as u32,
            _ => u32::from(choices.byte()),
        };
        forged[to].copy_from_slice(&new.to_le_bytes());
    }
    replay(forged);
}
