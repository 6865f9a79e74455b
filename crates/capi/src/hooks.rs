//! Hooks: captured and changed values of the forward pass.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::adapter::{TablaAdapter, TablaControlVector};
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::pointers::{
    Choice, FloatBuffer, choose, copy_out, init_options, out_of, read_sized, size_of_struct,
    slice_of, text_of, texts_of, write_sized,
};
use super::sequence::{TablaModel, TablaSession, with_session};
use std::ffi::{CString, c_char};
use tabla::error::bail;
use tabla::{
    Adapter, CapturePositions, Edit, EditAction, Error, ErrorKind, Facts, HookSpec, Hooks, Result,
};

/// Captures every position.
pub const TABLA_POSITIONS_ALL: i32 = 0;
/// Captures the last token of the sequence.
pub const TABLA_POSITIONS_LAST: i32 = 1;
/// Captures the positions of a list.
pub const TABLA_POSITIONS_LIST: i32 = 2;

/// Sets the columns to the vector, or to a vector per position.
pub const TABLA_EDIT_SET: i32 = 0;
/// Adds `factor` times the vector to the columns.
pub const TABLA_EDIT_ADD: i32 = 1;
/// Multiplies the columns by `factor`; 0 removes the value.
pub const TABLA_EDIT_SCALE: i32 = 2;
/// Subtracts `factor` times the projection of the columns on the vector; 1 removes the direction.
pub const TABLA_EDIT_PROJECT_OUT: i32 = 3;

/// A change of the value at some points.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TablaEdit {
    /// Pattern of the points, in which `*` stands for any text without a dot: `blk.3`, `blk.*.attn`.
    pub point: *const c_char,
    /// Vector with a number for each column of the edit; NULL with `TABLA_EDIT_SCALE`. With
    /// `TABLA_EDIT_SET` also the vectors of all positions of the edit, one after another.
    pub vector: *const f32,
    /// Number of numbers in `vector`.
    pub vector_count: usize,
    /// One of `TABLA_EDIT_*`.
    pub action: i32,
    /// Factor of the action; unused with `TABLA_EDIT_SET`.
    pub factor: f32,
    /// First column that changes.
    pub first_column: u32,
    /// Number of columns that change, such as those of an attention head; 0: all.
    pub column_count: u32,
    /// First position that changes.
    pub first_position: u32,
    /// Number of positions that change; 0: all from the first.
    pub position_count: u32,
}

/// A control vector of hooks: `scale` times the vector of a layer is added to the output of the layer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TablaSteer {
    /// Control vector.
    pub vector: *const TablaControlVector,
    /// Factor.
    pub scale: f32,
    /// First layer to which it is added, counted from 0.
    pub first_layer: u32,
    /// Number of layers to which it is added; 0: all from the first.
    pub layer_count: u32,
}

/// Options of `tabla_hooks_new`. Set them with `tabla_hook_options_init` first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TablaHookOptions {
    /// Size of this struct in bytes.
    pub struct_size: u32,
    /// Positions whose values are captured: one of `TABLA_POSITIONS_*`. Default: all.
    pub positions: i32,
    /// Patterns of the points whose values are captured, in which `*` stands for any text without a dot.
    /// A point has the name of the tensor that computes it: `blk.*.attn_q`; `blk.3` is the residual
    /// stream after layer 3, `token_embd` that before the first layer.
    pub capture: *const *const c_char,
    /// Number of patterns.
    pub capture_count: usize,
    /// Positions of `TABLA_POSITIONS_LIST`, in ascending order.
    pub position_list: *const u32,
    /// Number of positions of the list.
    pub position_list_count: usize,
    /// Changes, applied in this order at each point, before its value is captured.
    pub edits: *const TablaEdit,
    /// Number of changes.
    pub edit_count: usize,
    /// LoRA adapters, at most one per `tabla_adapter_load`. A session uses each with scale 1 until
    /// `tabla_session_set_adapter_scales`.
    pub adapters: *const *const TablaAdapter,
    /// Number of adapters.
    pub adapter_count: usize,
    /// Control vectors, added after `edits`.
    pub steers: *const TablaSteer,
    /// Number of control vectors.
    pub steer_count: usize,
    /// Number of positions that rows of attention weights have; 0: the context of the model.
    pub attention_positions: u32,
    /// Must be 0.
    pub reserved: u32,
}

const DEFAULTS: TablaHookOptions = TablaHookOptions {
    struct_size: 0,
    positions: TABLA_POSITIONS_ALL,
    capture: std::ptr::null(),
    capture_count: 0,
    position_list: std::ptr::null(),
    position_list_count: 0,
    edits: std::ptr::null(),
    edit_count: 0,
    adapters: std::ptr::null(),
    adapter_count: 0,
    steers: std::ptr::null(),
    steer_count: 0,
    attention_positions: 0,
    reserved: 0,
};

/// A point whose values are captured: columns of a row.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TablaCapturedPoint {
    /// Size of this struct in bytes. Set it before the call.
    pub struct_size: u32,
    /// First column.
    pub offset: u32,
    /// Number of columns.
    pub cols: u32,
    /// Name of the point. Valid until the hooks are freed.
    pub name: *const c_char,
}

/// Hooks of a model: values to capture and to change. Opaque.
pub struct TablaHooks {
    hooks: Hooks,
    /// Names of the points.
    names: Vec<CString>,
}

impl HandleType for TablaHooks {
    const NAME: &'static str = "hooks";
}

/// Sets options to the defaults. `size` is `sizeof(TablaHookOptions)`.
///
/// # Safety
///
/// `options` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_hook_options_init(
    options: *mut TablaHookOptions,
    size: usize,
) -> TablaStatus {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { init_options(options, size, "TablaHookOptions", &DEFAULTS) })
}

/// Compiles and links tables with hooks for a model. Returns NULL on failure; `tabla_last_error` has the
/// reason. Any number of sessions can use them: `tabla_session_set_hooks`. Other sessions are not
/// affected. A pattern that matches no point, and an edit that does not fit a point, is
/// `TABLA_ERROR_ARGUMENT`.
///
/// # Safety
///
/// `options` points to a struct with `struct_size` set, whose pointers are valid for their counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_hooks_new(
    model: *const TablaModel,
    options: *const TablaHookOptions,
) -> *mut TablaHooks {
    guard_value(|| {
        let model = resolve(model)?;
        let model = model.model();
        // SAFETY: guaranteed by the caller.
        let (spec, adapters) = unsafe { spec_of(options, model.facts()) }?;
        let hooks = model.hooks_with(&spec, &adapters)?;
        let name = |point: &tabla::CapturedPoint| {
            CString::new(point.name.as_str())
                .map_err(|e| Error::new(ErrorKind::Internal, "invalid name").caused_by(e))
        };
        let names = hooks.points().iter().map(name).collect::<Result<_>>()?;
        handles::insert(TablaHooks { hooks, names })
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees hooks. Sessions that use them continue.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_hooks_free(hooks: *mut TablaHooks) -> TablaStatus {
    guard(|| handles::remove(hooks))
}

/// Returns the number of captured points in `count` and, unless `point` is NULL, the point `index` in
/// the order of the forward pass.
///
/// # Safety
///
/// `point` is NULL or points to a struct with `struct_size` set; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_hooks_point(
    hooks: *const TablaHooks,
    index: usize,
    point: *mut TablaCapturedPoint,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let hooks = resolve(hooks)?;
        let points = hooks.hooks.points();
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        if !point.is_null() {
            let (Some(found), Some(name)) = (points.get(index), hooks.names.get(index)) else {
                bail!(
                    Argument,
                    "point {index} is out of range: {} points are captured",
                    points.len()
                );
            };
            // SAFETY: guaranteed by the caller.
            let size = unsafe { size_of_struct(point, "point") }?;
            let value = TablaCapturedPoint {
                struct_size: 0,
                offset: found.offset,
                cols: found.cols,
                name: name.as_ptr(),
            };
            // SAFETY: the struct has `size` bytes.
            unsafe { write_sized(&value, point, size) };
        }
        *count = points.len();
        Ok(())
    })
}

/// Sets the hooks of a session; NULL removes them. Tokens of the session are computed again when they
/// are needed.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_session_set_hooks(
    session: *mut TablaSession,
    hooks: *const TablaHooks,
) -> TablaStatus {
    guard(|| {
        let hooks = match hooks.is_null() {
            true => None,
            false => Some(resolve(hooks)?),
        };
        let hooks = hooks.as_ref().map(|hooks| &hooks.hooks);
        with_session(session, |session| session.set_hooks(hooks))
    })
}

/// Sets the scales of the adapters of a session's hooks, in the order of `TablaHookOptions.adapters`; 0
/// disables an adapter. Tokens of the session are computed again when they are needed. Sessions with the
/// same hooks and other scales are decoded together.
///
/// # Safety
///
/// `scales` points to `count` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_set_adapter_scales(
    session: *mut TablaSession,
    scales: *const f32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let scales = unsafe { slice_of(scales, count, "scales") }?;
        with_session(session, |session| session.set_adapter_scales(scales))
    })
}

/// Computes the tokens of a session and returns the values that its hooks captured: a row for each
/// captured position, with the columns of every point. `rows` receives the number of rows and `width`
/// that of columns. `positions` receives the position of each row and `values` all rows; both may be
/// NULL, and their capacities are numbers of elements.
///
/// # Safety
///
/// `positions` and `values` are NULL or point to buffers of their capacities; `rows` and `width` point
/// to a `size_t` each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_captured(
    session: *mut TablaSession,
    positions: *mut u32,
    position_capacity: usize,
    values: *mut f32,
    value_capacity: usize,
    rows: *mut usize,
    width: *mut usize,
) -> TablaStatus {
    guard(|| {
        with_session(session, |session| {
            let captured = session.captured()?;
            // SAFETY: guaranteed by the caller.
            let rows = unsafe { out_of(rows, "rows") }?;
            // SAFETY: guaranteed by the caller.
            let width = unsafe { out_of(width, "width") }?;
            if !values.is_null() && value_capacity < captured.values().len() {
                bail!(
                    TooLarge,
                    "buffer too small: capacity is {value_capacity}, result has {} values",
                    captured.values().len()
                );
            }
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(captured.positions(), positions, position_capacity) }?;
            // SAFETY: guaranteed by the caller.
            unsafe { copy_out(captured.values(), values, value_capacity) }?;
            *rows = captured.positions().len();
            *width = captured.width();
            Ok(())
        })
    })
}

/// Replaces the tokens of a session, and computes them with its hooks. `tabla_session_captured` returns
/// the values. Unlike a prefill, it also works for encoders.
///
/// # Safety
///
/// `tokens` points to `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_capture(
    session: *mut TablaSession,
    tokens: *const u32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
        with_session(session, |session| session.capture(tokens).map(drop))
    })
}

/// Computes the logits that the model's final norm and output projection give for `rows` rows of the
/// residual stream, `TablaModelInfo.dim` numbers each (logit lens). `out` receives `rows` rows of
/// `TablaModelInfo.vocab` logits, and `count` their number; a NULL `out` only returns the number.
///
/// # Safety
///
/// `residual` points to the rows; `out` is NULL or points to `capacity` floats; `count` points to a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_hooks_lens(
    model: *const TablaModel,
    hooks: *const TablaHooks,
    residual: *const f32,
    rows: usize,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        let (model, hooks) = (resolve(model)?, resolve(hooks)?);
        let model = model.model();
        let [dim, vocab] = [model.facts().dim, model.facts().vocab].map(|n| n as usize);
        let (Some(numbers), Some(needed)) = (rows.checked_mul(dim), rows.checked_mul(vocab)) else {
            bail!(TooLarge, "{rows} rows exceed the address space");
        };
        // SAFETY: guaranteed by the caller.
        let residual = unsafe { slice_of(residual, numbers, "residual") }?;
        let buffer = FloatBuffer::new(out, capacity, count);
        // SAFETY: guaranteed by the caller.
        unsafe { buffer.write(needed, |out| model.lens(&hooks.hooks, residual, out)) }
    })
}

/// Reads options.
///
/// # Safety
///
/// See `tabla_hooks_new`.
unsafe fn spec_of(
    options: *const TablaHookOptions,
    facts: &Facts,
) -> Result<(HookSpec, Vec<Adapter>)> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { read_sized(options, DEFAULTS) }?;
    if options.reserved != 0 {
        bail!(
            Argument,
            "expected reserved to be 0, got {}",
            options.reserved
        );
    }
    // SAFETY: guaranteed by the caller.
    let capture = unsafe { slice_of(options.capture, options.capture_count, "capture") }?;
    // SAFETY: guaranteed by the caller.
    let capture = unsafe { texts_of(capture, "capture") }?;
    let (list, count) = (options.position_list, options.position_list_count);
    // SAFETY: guaranteed by the caller.
    let list = unsafe { slice_of(list, count, "position_list") }?;
    if !list.is_sorted_by(|a, b| a < b) {
        bail!(Argument, "position_list is not in ascending order");
    }
    let choices: [Choice<CapturePositions>; 3] = [
        (TABLA_POSITIONS_ALL, "all", CapturePositions::All),
        (TABLA_POSITIONS_LAST, "last", CapturePositions::Last),
        (
            TABLA_POSITIONS_LIST,
            "list",
            CapturePositions::List(list.to_vec()),
        ),
    ];
    let positions = choose("positions", options.positions, &choices)?;
    // SAFETY: guaranteed by the caller.
    let edits = unsafe { slice_of(options.edits, options.edit_count, "edits") }?;
    let edits = edits.iter().enumerate();
    // SAFETY: guaranteed by the caller.
    let edits = edits.map(|(at, edit)| unsafe { edit_of(at, edit) });
    let mut edits = edits.collect::<Result<Vec<_>>>()?;
    // SAFETY: guaranteed by the caller.
    for steer in unsafe { slice_of(options.steers, options.steer_count, "steers") }? {
        let end = match steer.layer_count {
            0 => facts.layers,
            count => steer.first_layer.saturating_add(count),
        };
        let (vector, layers) = (resolve(steer.vector)?, steer.first_layer..end);
        edits.extend(vector.0.edits(facts, Some(layers), steer.scale)?);
    }
    // SAFETY: guaranteed by the caller.
    let adapters = unsafe { slice_of(options.adapters, options.adapter_count, "adapters") }?;
    let adapters = adapters
        .iter()
        .map(|adapter| Ok(resolve(*adapter)?.0.clone()));
    let spec = HookSpec::default()
        .capture(capture.into_iter().map(String::from).collect())
        .positions(positions)
        .attention_positions(options.attention_positions)
        .edits(edits);
    Ok((spec, adapters.collect::<Result<_>>()?))
}

/// Creates the action of an edit from its vector and its factor.
type NewAction = fn(Vec<f32>, f32) -> EditAction;

/// Reads an edit.
///
/// # Safety
///
/// See `tabla_hooks_new`.
unsafe fn edit_of(at: usize, edit: &TablaEdit) -> Result<Edit> {
    // SAFETY: guaranteed by the caller.
    let point = unsafe { text_of(edit.point, format_args!("edits[{at}].point")) }?;
    // SAFETY: guaranteed by the caller.
    let vector = unsafe { slice_of(edit.vector, edit.vector_count, "vector") }?;
    let (vector, factor) = (vector.to_vec(), edit.factor);
    let choices: [Choice<NewAction>; 4] = [
        (TABLA_EDIT_SET, "set", |vector, _| EditAction::Set(vector)),
        (TABLA_EDIT_ADD, "add", |vector, scale| EditAction::Add {
            vector,
            scale,
        }),
        (TABLA_EDIT_SCALE, "scale", |_, factor| {
            EditAction::Scale(factor)
        }),
        (TABLA_EDIT_PROJECT_OUT, "project out", |vector, strength| {
            EditAction::ProjectOut { vector, strength }
        }),
    ];
    let action = choose("action", edit.action, &choices)?(vector, factor);
    let end = |first: u32, count: u32| match count {
        0 => u32::MAX,
        count => first.saturating_add(count),
    };
    let first = edit.first_position;
    let edited = Edit::new(point, action).positions(first..end(first, edit.position_count));
    Ok(match (edit.first_column, edit.column_count) {
        (0, 0) => edited,
        (first, 0) => bail!(
            Argument,
            "edits[{at}]: column_count is 0, expected a number of columns from column {first} on"
        ),
        (first, count) => edited.columns(first..end(first, count)),
    })
}
