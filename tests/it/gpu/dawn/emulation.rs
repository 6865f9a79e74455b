//! Cooperative matrices of 16x16 as plain WGSL, to test the kernels for them on drivers without them.
//!
//! Subgroups are runs of 32 lanes, each of which has eight elements of a matrix of sums. The matrices that are
//! multiplied stay in workgroup memory: a fragment is its place there.

use std::fmt::Write as _;

/// Returns the text of a kernel without cooperative matrices.
pub(super) fn emulated(text: &str) -> String {
    let mut text = text.to_string();
    for (from, to) in REPLACED {
        text = text.replace(from, to);
    }
    let mut arrays = Vec::new();
    while let Some(call) = Call::find(&text) {
        let replacement = call.emulated(&mut arrays);
        text.replace_range(call.range, &replacement);
    }
    let main = text.find("fn main(").expect("an entry point");
    let body = main + text[main..].find(") {").expect("a body") + 3;
    text.insert_str(body, "\n    emulated_lane = lane.index;");
    text.push_str(FUNCTIONS);
    let read = |at, element: &str| format!("        case {at}u {{ return f32({element}); }}\n");
    let cases = (0..)
        .zip(&arrays)
        .map(|(at, array)| read(at, &element(&text, array)));
    let cases: String = cases.collect();
    write!(
        text,
        "{READ}{cases}        default {{ return 0.0; }}\n    }}\n}}\n"
    )
    .expect("a string");
    let write = |at, element: &str| format!("        case {at}u {{ {element} = value; }}\n");
    let of_f32 = (0..).zip(&arrays).filter(|(_, array)| is_f32(&text, array));
    let cases = of_f32.map(|(at, array)| write(at, &element(&text, array)));
    let cases: String = cases.collect();
    write!(text, "{WRITE}{cases}        default {{}}\n    }}\n}}\n").expect("a string");
    text
}

const REPLACED: [(&str, &str); 12] = [
    ("enable wgpu_cooperative_matrix;\n", ""),
    ("    @builtin(subgroup_id) subgroup: u32,\n", ""),
    ("    @builtin(subgroup_invocation_id) place: u32,\n", ""),
    ("    @builtin(num_subgroups) subgroups: u32,\n", ""),
    ("lane.subgroups", "(WG / 32u)"),
    ("lane.subgroup", "(lane.index / 32u)"),
    ("lane.place", "(lane.index % 32u)"),
    ("coopMultiplyAdd(", "multiply_fragments_add("),
    ("c * X_WHOLE", "scale_fragment(c, X_WHOLE)"),
    ("coop_mat16x16<f16, A>", "Fragment"),
    ("coop_mat16x16<f16, B>", "Fragment"),
    ("coop_mat16x16<f32, C>", "FragmentSums"),
];

/// Element i of `FragmentSums` is element `emulated_lane + 32 i` of the matrix, row-major.
const FUNCTIONS: &str = "
alias FragmentSums = array<f32, 8>;

struct Fragment {
    array_id: u32,
    at: u32,
    stride: u32,
    by_rows: bool,
}

fn multiply_fragments_add(w: Fragment, x: Fragment, before: FragmentSums) -> FragmentSums {
    var sums = before;
    for (var i = 0u; i < 8u; i++) {
        let e = emulated_lane % 32u + 32u * i;
        for (var k = 0u; k < 16u; k++) {
            sums[i] += read_fragment(w, e / 16u, k) * read_fragment(x, k, e % 16u);
        }
    }
    return sums;
}

fn scale_fragment(sums: FragmentSums, factor: f32) -> FragmentSums {
    var all = sums;
    for (var i = 0u; i < 8u; i++) {
        all[i] *= factor;
    }
    return all;
}

fn store_fragment(sums: FragmentSums, to: Fragment) {
    var all = sums;
    for (var i = 0u; i < 8u; i++) {
        let e = emulated_lane % 32u + 32u * i;
        write_fragment(to, e / 16u, e % 16u, all[i]);
    }
}

var<private> emulated_lane: u32;
";

const READ: &str = "
fn read_fragment(m: Fragment, row: u32, column: u32) -> f32 {
    let major = m.at + m.stride * select(column, row, m.by_rows);
    let minor = select(row, column, m.by_rows);
    switch m.array_id {
";

const WRITE: &str = "
fn write_fragment(m: Fragment, row: u32, column: u32, value: f32) {
    let major = m.at + m.stride * select(column, row, m.by_rows);
    let minor = select(row, column, m.by_rows);
    switch m.array_id {
";

/// Returns the type of the elements of an array.
fn element_type<'a>(text: &'a str, array: &str) -> &'a str {
    let declared = text.split(&format!("{array}: array<")).nth(1);
    declared.unwrap_or_else(|| panic!("no array {array}"))
}

/// Returns element `minor` after element `major` of an array of rows of octets, of vectors of four or of numbers.
fn element(text: &str, array: &str) -> String {
    let element = element_type(text, array);
    if element.starts_with("array<Octet, PITCH>") {
        let vector = "(major + minor / 4u)";
        return format!(
            "{array}[{vector} / (2u * PITCH)][{vector} / 2u % PITCH][{vector} % 2u][minor % 4u]"
        );
    }
    match element.starts_with("vec4<") {
        true => format!("{array}[major + minor / 4u][minor % 4u]"),
        false => format!("{array}[major + minor]"),
    }
}

fn is_f32(text: &str, array: &str) -> bool {
    let element = element_type(text, array);
    ["vec4<f32>", "f32"]
        .iter()
        .any(|f32| element.starts_with(f32))
}

/// A load or a store of a matrix.
struct Call {
    range: std::ops::Range<usize>,
    function: String,
    arguments: Vec<String>,
}

impl Call {
    /// Finds the first call.
    fn find(text: &str) -> Option<Self> {
        let start = ["coopLoad", "coopStore"]
            .iter()
            .filter_map(|name| text.find(name))
            .min()?;
        let open = start + text[start..].find('(').expect("a call");
        let mut depth = 0;
        let mut arguments = vec![String::new()];
        let mut end = open;
        for c in text[open..].chars() {
            end += c.len_utf8();
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            match (c, depth) {
                (_, 0) => break,
                ('(', 1) => {}
                (',', 1) => arguments.push(String::new()),
                _ => arguments.last_mut().expect("an argument").push(c),
            }
        }
        let function = text[start..open].split('<').next().unwrap_or_default();
        Some(Self {
            range: start..end,
            function: function.to_string(),
            arguments: arguments.iter().map(|a| a.trim().to_string()).collect(),
        })
    }

    /// Returns the emulated call; adds its array to a list.
    fn emulated(&self, arrays: &mut Vec<String>) -> String {
        let stored = self.function.starts_with("coopStore");
        let [place, stride] = &self.arguments[usize::from(stored)..] else {
            panic!("{}: expected a place and a stride", self.function)
        };
        let place = place.trim_start_matches('&').strip_suffix(']');
        let (array, index) = place
            .and_then(|place| place.split_once('['))
            .expect("an element of an array");
        let index = match index.split("][").collect::<Vec<_>>()[..] {
            // A vector of an octet of a row.
            [row, octet, vector] => format!("2u * (PITCH * ({row}) + ({octet})) + {vector}"),
            _ => index.to_string(),
        };
        let known = arrays.iter().position(|known| known == array);
        let id = known.unwrap_or_else(|| {
            arrays.push(array.to_string());
            arrays.len() - 1
        });
        let by_rows = self.function.ends_with('T');
        let fragment = format!("Fragment({id}u, {index}, {stride}, {by_rows})");
        match stored {
            true => format!("store_fragment({}, {fragment})", self.arguments[0]),
            false => fragment,
        }
    }
}
