//! Thread pool that replays linked tables: the calling thread and its workers.
//!
//! Every thread walks the same steps and runs its part of each. There is a barrier only before a
//! step that accesses memory written by an earlier one. A waiting thread spins for a while and then
//! parks, so that neither an idle executor nor an oversubscribed machine burns a core.
#![expect(unsafe_code, reason = "passes disjoint parts of a step to the threads")]

use super::memory::{Args, Operand};
use super::step::{Step, Steps};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tabla_core::error::{Error, ErrorKind, Result, bail};
use tabla_core::exec::{CommandTiming, Programs};
use tabla_core::op::table::Cmds;
use tabla_core::reserve;

/// Barrier polls before a thread parks: about 50 us. Fewer under Miri, which runs one thread at a time.
const SPINS: u32 = if cfg!(miri) { 100 } else { 4000 };
/// Barrier polls before a thread checks whether it shares its CPU with another thread: about 2 us.
const SPINS_BEFORE_CHECK: u32 = 150;

/// The calling thread and its workers.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Used by the workers only during `run`.
    programs: Programs<LinkedTables>,
}

struct Shared {
    threads: usize,
    barrier: Barrier,
    job: Job,
    quit: AtomicBool,
    panicked: AtomicBool,
}

/// The linked tables and the memory that they refer to.
pub(super) struct LinkedTables {
    /// Steps of each table.
    pub(super) tables: Vec<Steps>,
    /// Arena and tensors that the steps point into.
    pub(super) _keep: Box<dyn Any + Send + Sync>,
}

/// Current job; written by the caller while the workers wait.
#[derive(Default)]
struct Job {
    /// The table, valid until all threads have finished the job.
    table: AtomicPtr<Steps>,
    /// Start and end of the commands: body, then tail.
    ranges: [[AtomicUsize; 2]; 2],
    times: AtomicU32,
    /// Active rows of this replay and of the next, alternating: a slow thread may still read one
    /// while a fast one writes the other.
    live: [AtomicUsize; 2],
}

impl Job {
    fn live(&self, replay: u32) -> &AtomicUsize {
        &self.live[replay as usize % 2]
    }

    /// Command ranges; the last may be empty.
    fn ranges(&self) -> [Range<usize>; 2] {
        [0, 1].map(|i| {
            let [start, end] = [0, 1].map(|j| self.ranges[i][j].load(Ordering::Relaxed));
            start..end
        })
    }
}

impl Pool {
    /// Starts `threads - 1` workers for these tables.
    pub(super) fn new(linked: LinkedTables, threads: usize) -> Result<Self> {
        let count = linked.tables.len();
        let programs = Programs::new(linked, count);
        let shared = Arc::new(Shared {
            threads,
            barrier: Barrier::new(threads),
            job: Job::default(),
            quit: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let mut workers = Vec::with_capacity(threads - 1);
        for thread in 1..threads {
            let own = Arc::clone(&shared);
            let builder = reserve::thread(&format!("tabla-{thread}"));
            let spawned = builder.and_then(|b| b.spawn(move || own.run_worker(thread)));
            match spawned {
                Ok(worker) => workers.push(worker),
                Err(e) => {
                    shared.barrier.shrink(threads - 1 - workers.len());
                    drop(Self {
                        shared,
                        workers,
                        programs,
                    });
                    let message = format_args!("cannot start thread {} of {threads}", thread + 1);
                    return Err(Error::new(ErrorKind::Memory, message).caused_by(e));
                }
            }
        }
        Ok(Self {
            shared,
            workers,
            programs,
        })
    }

    /// Adds tables; returns the index of the first.
    pub(super) fn add(&mut self, linked: LinkedTables) -> usize {
        let count = linked.tables.len();
        self.programs.add(linked, count)
    }

    /// Removes added tables and frees their memory; returns their indices.
    pub(super) fn remove(&mut self, first: usize) -> Result<Range<usize>> {
        let (tables, _) = self.programs.remove(first)?;
        Ok(tables)
    }

    /// Steps of a table.
    pub(super) fn steps(&self, table: usize) -> Result<&Steps> {
        let (linked, at) = self.programs.find(table)?;
        Ok(&linked.tables[at])
    }

    /// Returns a value for each table index; the default value for removed tables.
    pub(super) fn by_table<T: Default>(&self, value: impl Fn(&Steps) -> T) -> Vec<T> {
        self.programs
            .by_table(|linked, at| value(&linked.tables[at]))
    }

    /// Memory of an operand in the arena.
    pub(super) fn memory(&mut self, operand: Operand) -> &mut [u8] {
        // SAFETY: the pool owns the arenas and lends them out only here, and its threads wait.
        unsafe { operand.exclusive() }
    }

    /// Runs these commands of a table `times` times, or until no row is active. `timings` must have
    /// an entry for every command of the table.
    pub(super) fn run(
        &mut self,
        table: usize,
        cmds: &Cmds,
        times: u32,
        timings: Option<(Instant, &mut [CommandTiming])>,
    ) -> Result<()> {
        let shared = &self.shared;
        if shared.panicked.load(Ordering::Relaxed) {
            bail!(State, "an earlier run on this executor panicked");
        }
        let steps = self.steps(table)?;
        let address = std::ptr::from_ref(steps).cast_mut();
        shared.job.table.store(address, Ordering::Relaxed);
        let ranges = [&cmds.body, &cmds.stage]
            .into_iter()
            .zip(&shared.job.ranges);
        for (range, [start, end]) in ranges {
            start.store(range.start, Ordering::Relaxed);
            end.store(range.end, Ordering::Relaxed);
        }
        shared.job.times.store(times, Ordering::Relaxed);
        shared.publish_live(steps, 0);
        if times == 0 {
            return Ok(());
        }
        let timings = timings.filter(|_| cmds.ranges().next().is_some());
        let timer = timings.map(|(epoch, timings)| CommandTimer {
            first: &steps.first,
            timings,
            epoch,
            cmd: 0,
            since: Instant::now(),
        });
        shared.barrier.wait(0);
        shared.walk(0, timer);
        if shared.panicked.load(Ordering::Relaxed) {
            bail!(Internal, "a kernel panicked");
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Relaxed);
        self.shared.barrier.wait(0);
        for worker in self.workers.drain(..) {
            // A worker catches all panics of its kernels, so the result carries no information.
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
    /// Main loop of a worker.
    fn run_worker(&self, thread: usize) {
        loop {
            self.barrier.wait(thread);
            if self.quit.load(Ordering::Relaxed) {
                return;
            }
            self.walk(thread, None);
        }
    }

    /// Runs the job. All threads take the same branches: the job and the number of active rows are
    /// written by the first thread, and only while all others wait.
    fn walk(&self, thread: usize, mut timer: Option<CommandTimer<'_>>) {
        // SAFETY: `Pool::run` borrows the table until all threads have passed the last barrier of
        // the job, and nothing writes it.
        let table = unsafe { &*self.job.table.load(Ordering::Relaxed) };
        let [body, tail] = self.job.ranges();
        for replay in 0..self.job.times.load(Ordering::Relaxed) {
            let live = self.job.live(replay).load(Ordering::Relaxed);
            if live == 0 {
                // A slow thread may still read the job; wait before another one starts.
                self.barrier.wait(thread);
                return;
            }
            self.steps(table, &body, [thread, live], &mut timer);
            if !tail.is_empty() {
                self.barrier.wait(thread);
                timer.iter_mut().for_each(CommandTimer::end_command);
                self.steps(table, &tail, [thread, live], &mut timer);
            }
            if thread == 0 {
                self.publish_live(table, replay + 1);
            }
            self.barrier.wait(thread);
            timer.iter_mut().for_each(CommandTimer::end_command);
        }
        // The first thread modifies the job, its active rows and `quit` only after all threads have
        // read them.
        self.barrier.wait(thread);
    }

    /// Runs the steps of these commands.
    fn steps(
        &self,
        table: &Steps,
        cmds: &Range<usize>,
        [thread, live]: [usize; 2],
        timer: &mut Option<CommandTimer<'_>>,
    ) {
        if let Some(timer) = timer {
            timer.start_at(cmds.start);
        }
        for at in table.range(cmds.clone()) {
            let step = &table.steps[at];
            match step.computed_by {
                Some(cmd) if cmd >= cmds.start => continue,
                // The step that computed it is before the range, so no barrier was planned for it.
                Some(_) => {
                    self.barrier.wait(thread);
                    self.part(step, thread, live);
                    self.barrier.wait(thread);
                    continue;
                }
                None => {}
            }
            if step.barrier {
                self.barrier.wait(thread);
            }
            if let Some(timer) = timer {
                timer.start_step(at);
            }
            self.part(step, thread, live);
        }
    }

    /// Publishes the number of active rows. Only the first thread may call this: it runs the steps
    /// that write the state.
    fn publish_live(&self, table: &Steps, replay: u32) {
        // SAFETY: it is the state, and its only writer is this thread.
        let live = unsafe { table.state.active_rows() };
        self.job.live(replay).store(live, Ordering::Relaxed);
    }

    /// Runs this thread's part of a step. After a panic, steps are skipped but barriers are not.
    fn part(&self, step: &Step, thread: usize, live: usize) {
        let live = live.min(step.bound.tokens);
        let Some(part) = step.part(thread, self.threads, live) else {
            return;
        };
        if self.panicked.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: every thread calls this once per step with its own part of the same division, and
        // a barrier separates the step from those that share written memory with it.
        let args = unsafe { Args::new(&step.bound, part, live) };
        let entry = step.entry;
        if catch_unwind(AssertUnwindSafe(|| entry(args))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// Times commands with the clock of the first thread.
struct CommandTimer<'a> {
    /// Same as [`Steps::first`].
    first: &'a [usize],
    timings: &'a mut [CommandTiming],
    /// Start of timing.
    epoch: Instant,
    /// The running command and its start.
    cmd: usize,
    since: Instant,
}

impl CommandTimer<'_> {
    /// Starts a replay at this command.
    fn start_at(&mut self, cmd: usize) {
        self.cmd = cmd;
        self.since = Instant::now();
    }

    /// Notes the start of a step, which may start the next command: each has a step that is not
    /// skipped.
    fn start_step(&mut self, step: usize) {
        if step >= self.first[self.cmd + 1] {
            self.end_command();
            self.cmd += 1;
        }
    }

    /// Ends the running command.
    fn end_command(&mut self) {
        let now = Instant::now();
        let timing = &mut self.timings[self.cmd];
        timing.runs += 1;
        timing.took += now - self.since;
        timing.begun = self.since - self.epoch;
        self.since = now;
    }
}

/// A barrier that spins, then parks.
struct Barrier {
    threads: AtomicUsize,
    arrived: AtomicUsize,
    /// Number of completed barriers.
    epoch: AtomicU32,
    parked: Mutex<u32>,
    wake: Condvar,
    /// The CPU on which each thread waited last, if it was not for a moment.
    cpus: Box<[AtomicU32]>,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            threads: AtomicUsize::new(threads),
            arrived: AtomicUsize::new(0),
            epoch: AtomicU32::new(0),
            parked: Mutex::new(0),
            wake: Condvar::new(),
            cpus: (0..threads).map(|_| AtomicU32::new(UNKNOWN_CPU)).collect(),
        }
    }

    /// Removes threads that failed to start; called before the first barrier.
    fn shrink(&self, missing: usize) {
        self.threads.fetch_sub(missing, Ordering::AcqRel);
    }

    /// Waits until all threads have arrived; their earlier writes are visible afterwards.
    fn wait(&self, thread: usize) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        // Read after the arrival: a thread that arrives after `shrink` sees the new number.
        if arrived == self.threads.load(Ordering::Acquire) {
            self.arrived.store(0, Ordering::Relaxed);
            let parked = self.lock();
            self.epoch.store(epoch.wrapping_add(1), Ordering::Release);
            if *parked > 0 {
                self.wake.notify_all();
            }
            return;
        }
        for spin in 0..SPINS {
            if self.epoch.load(Ordering::Acquire) != epoch {
                return;
            }
            if spin == SPINS_BEFORE_CHECK && self.shares_cpu(thread) {
                break;
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

    /// Notes the CPU of this thread, and returns whether another thread waited there last: if it has not arrived
    /// again, it probably waits for the CPU, so spinning delays it.
    fn shares_cpu(&self, thread: usize) -> bool {
        let cpu = current_cpu();
        self.cpus[thread].store(cpu, Ordering::Relaxed);
        let mut others = self.cpus.iter().enumerate().filter(|(at, _)| *at != thread);
        cpu != UNKNOWN_CPU && others.any(|(_, other)| other.load(Ordering::Relaxed) == cpu)
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const UNKNOWN_CPU: u32 = u32::MAX;

/// Returns the number of the CPU that runs this thread, or `UNKNOWN_CPU` if the system does not report it.
fn current_cpu() -> u32 {
    // Miri has no such call.
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: it has no arguments and touches no memory of the process.
    let cpu = u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(UNKNOWN_CPU);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let cpu = UNKNOWN_CPU;
    cpu
}
