//! The executor of a model whose device was lost.

use crate::device::Profile;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{CommandTiming, Copying, Executor, Program, Span};
use crate::model::LinkedTables;
use crate::op::table::{BufferId, Cmds};

/// Returns the failure of a model's GPU, after which nothing runs there.
pub(super) fn failure(linked: &LinkedTables) -> Option<Error> {
    #[cfg(feature = "gpu")]
    return linked.gpu.as_ref()?.check_reported().err();
    #[cfg(not(feature = "gpu"))]
    {
        let _ = linked;
        None
    }
}

/// Frees the memory of a device that was lost, before a caller gets the error and loads the model again.
pub(super) fn free_if_lost(linked: &mut LinkedTables, error: &Error) {
    let failure = failure(linked);
    if error.kind() == ErrorKind::DeviceLost || failure.is_some() {
        // The error of a call may have another cause.
        let error = failure.as_ref().unwrap_or(error);
        linked.executor = Box::new(LostExecutor::new(&*linked.executor, error));
    }
}

/// Takes the place of an executor whose device was lost, so that the memory of the device is freed. Every call returns
/// the error of the loss.
#[derive(Debug)]
struct LostExecutor {
    profile: Profile,
    error: Error,
}

impl LostExecutor {
    /// Creates the executor that takes the place of `lost`.
    fn new(lost: &dyn Executor, error: &Error) -> Self {
        Self {
            profile: lost.profile().clone(),
            error: Error::new(error.kind(), error.message()),
        }
    }

    fn fail<T>(&self) -> Result<T> {
        Err(Error::new(self.error.kind(), self.error.message()))
    }
}

impl Executor for LostExecutor {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn add_tables(&mut self, _: Program) -> Result<usize> {
        self.fail()
    }

    fn remove_tables(&mut self, _: usize) -> Result<()> {
        self.fail()
    }

    fn run(&mut self, _: usize, _: Cmds, _: u32) -> Result<()> {
        self.fail()
    }

    fn write(&mut self, _: BufferId, _: usize, _: &[u8]) -> Result<()> {
        self.fail()
    }

    fn read(&mut self, _: BufferId, _: usize, _: &mut [u8]) -> Result<()> {
        self.fail()
    }

    fn duplicate(&mut self, _: BufferId, _: usize, _: usize, _: usize) -> Result<()> {
        self.fail()
    }

    fn copy(&mut self, _: &[Span]) -> Result<Copying> {
        self.fail()
    }

    fn take(&mut self, _: Copying, _: &mut [u8]) -> Result<()> {
        self.fail()
    }

    fn time_commands(&mut self) -> Result<()> {
        self.fail()
    }

    fn end_timing(&mut self) {}

    fn command_timings(&self, _: usize) -> &[CommandTiming] {
        &[]
    }
}
