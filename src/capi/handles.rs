//! Handles: what C holds is a number, resolved here. NULL, stale and foreign ones are errors.

use crate::decode::{Cancel, Model, Session};
use crate::error::{Error, ErrorKind, Result, bail};
use crate::model::Facts;
use crate::text::{ChatTemplates, Tokenizer};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

/// A loaded model. Opaque: its address is a number that only the library understands.
pub struct TablaModel {
    session: Mutex<Session>,
    /// What can be asked while the session is busy.
    model: Model,
    /// Who is inside a call, so that a callback's call is told from another thread's.
    inside: Mutex<Option<ThreadId>>,
    cancel: Cancel,
    poisoned: AtomicBool,
}

impl TablaModel {
    /// Refuses a model that a panic left in an unknown state.
    fn check_sound(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            bail!(
                State,
                "a call on this model panicked; free it and load it again"
            );
        }
        Ok(())
    }
}

/// A place in the table; `generation` counts how often it was emptied.
struct Entry {
    generation: usize,
    model: Option<Arc<TablaModel>>,
}

static TABLE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Bits of a handle that are the index; above them stands the generation, below a mark, which
/// keeps a handle from being NULL and makes it odd, as no real pointer to an object is.
const INDEX_BITS: u32 = 16;
const MARK: usize = 1;

/// Generations that a handle has bits for. A place that had them all is not given out again.
const GENERATIONS: usize = usize::MAX >> (INDEX_BITS + 1);

fn encode(index: usize, generation: usize) -> *mut TablaModel {
    let bits = (generation << INDEX_BITS | index) << 1 | MARK;
    std::ptr::without_provenance_mut(bits)
}

fn decode(handle: *const TablaModel) -> Option<(usize, usize)> {
    let bits = handle.addr();
    let marked = bits & MARK == MARK;
    marked.then_some((
        (bits >> 1) & ((1 << INDEX_BITS) - 1),
        bits >> 1 >> INDEX_BITS,
    ))
}

/// Gives a session a handle.
pub(super) fn insert(session: Session) -> Result<*mut TablaModel> {
    let cancel = session.canceller();
    let model = Arc::new(TablaModel {
        model: session.model().clone(),
        session: Mutex::new(session),
        inside: Mutex::new(None),
        cancel,
        poisoned: AtomicBool::new(false),
    });
    let mut table = TABLE.lock();
    let index = table
        .iter()
        .position(|e| e.model.is_none() && e.generation < GENERATIONS)
        .unwrap_or(table.len());
    if index >> INDEX_BITS != 0 {
        bail!(TooLarge, "{index} models are loaded, which is the limit");
    }
    if index == table.len() {
        table.push(Entry {
            generation: 0,
            model: None,
        });
    }
    let entry = &mut table[index];
    entry.model = Some(model);
    Ok(encode(index, entry.generation))
}

/// The model of a handle.
fn resolve(handle: *const TablaModel) -> Result<Arc<TablaModel>> {
    if handle.is_null() {
        bail!(Handle, "the model is NULL");
    }
    let table = TABLE.lock();
    let found = decode(handle)
        .and_then(|(index, generation)| table.get(index).map(|e| (e, generation)))
        .filter(|(entry, generation)| entry.generation == *generation)
        .and_then(|(entry, _)| entry.model.clone());
    found.ok_or_else(|| Error::new(ErrorKind::Handle, "the model was freed or is no model"))
}

/// Forgets a handle. A call that is inside the model ends first, on its own thread.
pub(super) fn remove(handle: *const TablaModel) -> Result<()> {
    let model = resolve(handle)?;
    model.cancel.close();
    let mut table = TABLE.lock();
    let entry = decode(handle).and_then(|(index, _)| table.get_mut(index));
    let Some(entry) = entry.filter(|e| e.model.as_ref().is_some_and(|m| Arc::ptr_eq(m, &model)))
    else {
        bail!(Handle, "the model was freed by another thread");
    };
    entry.model = None;
    entry.generation += 1;
    drop(table);
    Ok(())
}

/// Runs a call on a model's session. One at a time: a second one is an error, not a wait.
pub(super) fn with<T>(
    handle: *const TablaModel,
    call: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    let model = resolve(handle)?;
    model.check_sound()?;
    let Some(mut session) = model.session.try_lock() else {
        if *model.inside.lock() == Some(std::thread::current().id()) {
            bail!(State, "a callback calls the model that is calling it");
        }
        bail!(State, "the model is busy on another thread");
    };
    *model.inside.lock() = Some(std::thread::current().id());
    // What came before this call was meant for another.
    session.forget_cancel();
    let out = catch_unwind(AssertUnwindSafe(|| call(&mut session)));
    *model.inside.lock() = None;
    out.unwrap_or_else(|panic| {
        model.poisoned.store(true, Ordering::Release);
        resume_unwind(panic)
    })
}

/// Runs a call on what never changes of a model, whatever its session does meanwhile.
pub(super) fn read<T>(
    handle: *const TablaModel,
    call: impl FnOnce(&Tokenizer, &Facts) -> Result<T>,
) -> Result<T> {
    let model = resolve(handle)?;
    model.check_sound()?;
    call(model.model.tokenizer(), model.model.facts())
}

/// Runs a call on the chat templates of a model and its tokenizer, whatever its session does.
pub(super) fn read_chat<T>(
    handle: *const TablaModel,
    call: impl FnOnce(&ChatTemplates, &Tokenizer) -> Result<T>,
) -> Result<T> {
    let model = resolve(handle)?;
    model.check_sound()?;
    call(model.model.chat_templates(), model.model.tokenizer())
}

/// Stops what a model does, from any thread.
pub(super) fn cancel(handle: *const TablaModel) -> Result<()> {
    resolve(handle)?.cancel.cancel();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::guard::guard;
    use crate::load::{DeviceChoice, Options, Source};

    #[test]
    fn handles_are_odd_and_come_back() {
        for (index, generation) in [(0, 0), (1, 0), (65535, 7), (3, 1 << 20)] {
            let handle = encode(index, generation);
            assert_eq!(handle.addr() & 1, 1);
            assert_eq!(decode(handle), Some((index, generation)));
        }
        assert!(decode(std::ptr::without_provenance(0x7f00_0000_1000)).is_none());
    }

    #[test]
    fn a_panic_poisons_its_model_and_no_other() {
        let load = || {
            let options = Options {
                device: DeviceChoice::Cpu,
                context: 16,
                ..Options::default()
            };
            let model = crate::load(&Source::BuiltIn, &options, &mut |_| {}).expect("it loads");
            insert(Session::new(model)).expect("there is room")
        };
        let (bad, good) = (load(), load());
        let call = |handle| {
            guard(|| {
                with(handle, |session| {
                    session.reset();
                    Ok(())
                })
            })
        };
        let panics = || with(bad, |_| -> Result<()> { panic!("at once") });
        assert_eq!(guard(panics), ErrorKind::Panic as i32);
        assert_eq!(call(bad), ErrorKind::State as i32);
        assert_eq!(call(good), 0);
        assert_eq!(guard(|| remove(bad)), 0);
        assert_eq!(guard(|| remove(good)), 0);
        assert_eq!(call(bad), ErrorKind::Handle as i32);
    }
}
