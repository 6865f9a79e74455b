// Runs a program for wasm32-wasip1 in Node: `node run.mjs PROGRAM.wasm [ARGUMENT...]`.
//
// A panic ends an instance, so each test of a test program runs in a process of its own. Tests that start threads or
// programs, or use the system's folder of temporary files, are unsupported. Prints the output of tests that fail, and a
// summary.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { argv, env, execPath, exit, stdout } from "node:process";
import { fileURLToPath } from "node:url";
import { Exit, Wasi } from "./wasi.mjs";

/** Panics of the standard library for what WASI lacks. */
const UNSUPPORTED = /no filesystem on wasm|(thread|status): Os \{ code: 58, kind: Unsupported/;

/** Time after which a test fails. */
const MILLISECONDS_MAX = 300_000;

/** Runs the program in this process. */
async function run([program, ...args]) {
    const wasi = new Wasi([program, ...args], env);
    const module = await WebAssembly.compile(readFileSync(program));
    const { exports } = await WebAssembly.instantiate(module, wasi.imports);
    wasi.memory = exports.memory;
    try {
        exports._start();
    } catch (error) {
        if (!(error instanceof Exit)) throw error;
        exit(error.code);
    }
}

/** Runs the program in a process of its own; returns its exit status and its output. */
function start(args) {
    const child = spawn(execPath, ["--no-warnings", fileURLToPath(import.meta.url), "--here", ...args], { timeout: MILLISECONDS_MAX });
    const output = [];
    child.stdout.on("data", (data) => output.push(data));
    child.stderr.on("data", (data) => output.push(data));
    return new Promise((done) => {
        child.on("close", (status) => done({ status, text: Buffer.concat(output).toString() }));
    });
}

async function test([program, ...filters]) {
    const { status, text } = await start([program, ...filters, "--list", "--format", "terse"]);
    if (status !== 0) {
        stdout.write(`${text.slice(-4000)}\n${program}: listing the tests failed, exit status ${status}\n`);
        exit(1);
    }
    const listed = text.split("\n").filter((line) => line.endsWith(": test"));
    const names = listed.map((line) => line.slice(0, -": test".length));
    const failed = [];
    const count = { ok: 0, ignored: 0, unsupported: 0, FAILED: 0 };
    let next = 0;
    const work = async () => {
        while (next < names.length) {
            const name = names[next++];
            const begun = performance.now();
            const { status, text } = await start([program, "--exact", name, "--nocapture"]);
            const seconds = ((performance.now() - begun) / 1000).toFixed(1);
            const ended = UNSUPPORTED.test(text) ? "unsupported" : "FAILED";
            const outcome = status !== 0 ? ended : / 1 ignored;/.test(text) ? "ignored" : "ok";
            stdout.write(`test ${name} ... ${outcome} (${seconds} s)\n`);
            count[outcome] += 1;
            if (outcome === "FAILED") {
                failed.push(name);
                stdout.write(`${text.slice(-4000)}\nexit status ${status}\n`);
            }
        }
    };
    await Promise.all(Array.from({ length: Number(env.TABLA_TEST_THREADS ?? 2) }, work));
    const result = failed.length === 0 ? "ok" : "FAILED";
    const rest = `${count.ignored} ignored; ${count.unsupported} unsupported`;
    stdout.write(`test result: ${result}. ${count.ok} passed; ${count.FAILED} failed; ${rest}\n`);
    failed.forEach((name) => stdout.write(`    ${name}\n`));
    exit(failed.length === 0 ? 0 : 1);
}

const args = argv.slice(2);
await (args[0] === "--here" ? run(args.slice(1)) : test(args));
