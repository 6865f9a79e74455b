//! Threads that walk linked tables together: the caller and its workers.
//!
//! Every thread walks the same steps and does its part of each; a barrier stands only before a
//! step that touches what an earlier one wrote. Who waits spins for a while and then parks, so
//! that neither an idle executor nor an oversubscribed machine burns a core.
#![expect(unsafe_code, reason = "hands disjoint parts of a step to the threads")]

use super::memory::{Args, Operand};
use super::step::{Step, Steps};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::CommandTiming;
use tabla_core::op::table::Cmds;

/// Looks at the barrier before a thread parks: some 50 us.
const SPINS: u32 = 4000;

/// The caller's thread and its workers.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    linked: LinkedTable,
    threads: usize,
    barrier: Barrier,
    job: Job,
    quit: AtomicBool,
    panicked: AtomicBool,
}

/// The linked tables, and whatever must live as long as they do.
pub(super) struct LinkedTable {
    /// The tables.
    pub(super) tables: Vec<Steps>,
    /// Arena and tensors, which the steps point into.
    pub(super) _keep: Box<dyn Any + Send + Sync>,
}

/// What to walk; written by the caller while the workers wait.
#[derive(Default)]
struct Job {
    table: AtomicUsize,
    /// Begin and end of the commands: those of the body, those of the tail.
    ranges: [[AtomicUsize; 2]; 2],
    times: AtomicU32,
    /// Live rows of this replay and of the next, in turn: a slow thread may still be reading
    /// one while a fast one tells the other.
    live: [AtomicUsize; 2],
}

impl Job {
    fn live(&self, replay: u32) -> &AtomicUsize {
        &self.live[replay as usize % 2]
    }

    /// The ranges of commands; the last may be empty.
    fn ranges(&self) -> [Range<usize>; 2] {
        [0, 1].map(|i| {
            let [start, end] = [0, 1].map(|j| self.ranges[i][j].load(Ordering::Relaxed));
            start..end
        })
    }
}

impl Pool {
    /// Starts `threads - 1` workers on these tables.
    pub(super) fn new(linked: LinkedTable, threads: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            linked,
            threads,
            barrier: Barrier::new(threads),
            job: Job::default(),
            quit: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let mut workers = Vec::with_capacity(threads - 1);
        for thread in 1..threads {
            let own = Arc::clone(&shared);
            let spawned = std::thread::Builder::new()
                .name(format!("tabla-{thread}"))
                .spawn(move || own.work(thread));
            match spawned {
                Ok(worker) => workers.push(worker),
                Err(e) => {
                    shared.barrier.shrink(threads - 1 - workers.len());
                    drop(Self { shared, workers });
                    let message = format_args!("thread {} of {threads} cannot start", thread + 1);
                    return Err(Error::new(ErrorKind::Memory, message).caused_by(e));
                }
            }
        }
        Ok(Self { shared, workers })
    }

    /// The tables.
    pub(super) fn tables(&self) -> &[Steps] {
        &self.shared.linked.tables
    }

    /// The memory of an operand of the arena.
    pub(super) fn memory(&mut self, operand: Operand) -> &mut [u8] {
        // SAFETY: the pool keeps the arena and lends it out here alone, and its threads wait.
        unsafe { operand.exclusive() }
    }

    /// Walks these commands of a table `times` times, or until no row lives. `laps` has room for
    /// the time of every command of the table.
    pub(super) fn run(
        &mut self,
        table: usize,
        cmds: &Cmds,
        times: u32,
        laps: Option<(Instant, &mut [CommandTiming])>,
    ) -> Result<()> {
        let shared = &self.shared;
        if shared.panicked.load(Ordering::Relaxed) {
            bail!(State, "an earlier run on this executor panicked");
        }
        shared.job.table.store(table, Ordering::Relaxed);
        let ranges = [&cmds.body, &cmds.stage]
            .into_iter()
            .zip(&shared.job.ranges);
        for (range, [start, end]) in ranges {
            start.store(range.start, Ordering::Relaxed);
            end.store(range.end, Ordering::Relaxed);
        }
        shared.job.times.store(times, Ordering::Relaxed);
        shared.tell_live(&shared.linked.tables[table], 0);
        if times == 0 {
            return Ok(());
        }
        let laps = laps.filter(|_| cmds.ranges().next().is_some());
        let watch = laps.map(|(epoch, laps)| Watch {
            first: &shared.linked.tables[table].first,
            laps,
            epoch,
            cmd: 0,
            since: Instant::now(),
        });
        shared.barrier.wait();
        shared.walk(0, watch);
        if shared.panicked.load(Ordering::Relaxed) {
            bail!(Internal, "a kernel panicked");
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.shared.barrier.wait();
        for worker in self.workers.drain(..) {
            // A worker catches every panic of its kernels, so there is nothing to learn here.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool of {} threads", self.shared.threads)
    }
}

impl Shared {
    /// A worker's life: wait, walk, wait.
    fn work(&self, thread: usize) {
        loop {
            self.barrier.wait();
            if self.quit.load(Ordering::Relaxed) {
                return;
            }
            self.walk(thread, None);
        }
    }

    /// Walks the job. Every thread takes the same turns: what they depend on, the job and the
    /// live rows, is told by the first thread and changes only where all of them wait.
    fn walk(&self, thread: usize, mut watch: Option<Watch<'_>>) {
        let table = &self.linked.tables[self.job.table.load(Ordering::Relaxed)];
        let [body, tail] = self.job.ranges();
        for replay in 0..self.job.times.load(Ordering::Relaxed) {
            let live = self.job.live(replay).load(Ordering::Relaxed);
            if live == 0 {
                // Nobody may begin another job while a slow thread reads this one's end.
                self.barrier.wait();
                return;
            }
            self.steps(table, &body, [thread, live], &mut watch);
            if !tail.is_empty() {
                self.barrier.wait();
                watch.iter_mut().for_each(Watch::lap);
                self.steps(table, &tail, [thread, live], &mut watch);
            }
            if thread == 0 {
                self.tell_live(table, replay + 1);
            }
            self.barrier.wait();
            watch.iter_mut().for_each(Watch::lap);
        }
        // Nobody may still be reading the job, its live rows or `quit` when the first thread
        // goes on to change them.
        self.barrier.wait();
    }

    /// Walks the steps of these commands.
    fn steps(
        &self,
        table: &Steps,
        cmds: &Range<usize>,
        [thread, live]: [usize; 2],
        watch: &mut Option<Watch<'_>>,
    ) {
        if let Some(watch) = watch {
            watch.begin(cmds.start);
        }
        for at in table.range(cmds.clone()) {
            let step = &table.steps[at];
            match step.made_by {
                Some(cmd) if cmd >= cmds.start => continue,
                // What made it lies before the range, so nobody reckoned with this step.
                Some(_) => {
                    self.barrier.wait();
                    self.part(step, thread, live);
                    self.barrier.wait();
                    continue;
                }
                None => {}
            }
            if step.barrier {
                self.barrier.wait();
            }
            if let Some(watch) = watch {
                watch.comes_to(at);
            }
            self.part(step, thread, live);
        }
    }

    /// Tells all threads how many rows live. Only the first thread may come here: the state is
    /// written by steps that are its own.
    fn tell_live(&self, table: &Steps, replay: u32) {
        // SAFETY: it is the state, and its only writer is this thread.
        let live = unsafe { table.state.live() };
        self.job.live(replay).store(live, Ordering::Relaxed);
    }

    /// Does this thread's part of a step. After a panic steps are passed over, barriers are not.
    fn part(&self, step: &Step, thread: usize, live: usize) {
        let live = live.min(step.bound.tokens);
        let Some(part) = step.part(thread, self.threads, live) else {
            return;
        };
        if self.panicked.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: every thread comes here once for a step, with its own part of the same cut,
        // and a barrier parts this step from those that it shares written memory with.
        let args = unsafe { Args::new(&step.bound, part, live) };
        let entry = step.entry;
        if catch_unwind(AssertUnwindSafe(|| entry(args))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// Times commands by the clock of the first thread.
struct Watch<'a> {
    /// As in [`Steps`].
    first: &'a [usize],
    laps: &'a mut [CommandTiming],
    /// When timing began.
    epoch: Instant,
    /// The command that runs, and since when.
    cmd: usize,
    since: Instant,
}

impl Watch<'_> {
    /// A replay begins with this command.
    fn begin(&mut self, cmd: usize) {
        self.cmd = cmd;
        self.since = Instant::now();
    }

    /// A step begins, and with it perhaps the next command: each has a step that is not skipped.
    fn comes_to(&mut self, step: usize) {
        if step >= self.first[self.cmd + 1] {
            self.lap();
            self.cmd += 1;
        }
    }

    /// The command ends.
    fn lap(&mut self) {
        let now = Instant::now();
        let lap = &mut self.laps[self.cmd];
        lap.runs += 1;
        lap.took += now - self.since;
        lap.begun = self.since - self.epoch;
        self.since = now;
    }
}

/// A barrier that spins, then parks.
struct Barrier {
    threads: AtomicUsize,
    arrived: AtomicUsize,
    /// Counts completed barriers.
    epoch: AtomicU32,
    parked: Mutex<u32>,
    wake: Condvar,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            threads: AtomicUsize::new(threads),
            arrived: AtomicUsize::new(0),
            epoch: AtomicU32::new(0),
            parked: Mutex::new(0),
            wake: Condvar::new(),
        }
    }

    /// Forgets threads that never started, before any barrier was passed.
    fn shrink(&self, missing: usize) {
        self.threads.fetch_sub(missing, Ordering::AcqRel);
    }

    /// Returns when all threads are here; what they wrote before is seen after.
    fn wait(&self) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        // Read behind the arrival: who comes after the one that shrank it sees the new number.
        if arrived == self.threads.load(Ordering::Acquire) {
            self.arrived.store(0, Ordering::Relaxed);
            let parked = self.lock();
            self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
            if *parked > 0 {
                self.wake.notify_all();
            }
            return;
        }
        for _ in 0..SPINS {
            if self.epoch.load(Ordering::Acquire) != epoch {
                return;
            }
            std::hint::spin_loop();
        }
        let mut parked = self.lock();
        *parked += 1;
        while self.epoch.load(Ordering::Acquire) == epoch {
            parked = self
                .wake
                .wait(parked)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *parked -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
