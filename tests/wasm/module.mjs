// Tests of the module for WebAssembly in Node, through the C ABI: `node module.mjs tabla.wasm tabla MODEL.gguf...`.
//
// `tabla` is the program of this system. The greedy answers of the module must be the same as its answers with the
// scalar kernels. Prints the size of the module and its speed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { argv, env } from "node:process";
import { brotliCompressSync, constants } from "node:zlib";
import { Wasi } from "./wasi.mjs";

/** Limit of the size that a browser downloads, in bytes. */
const BROTLI_BYTES_MAX = 2_500_000;
/** Sizes of the structs of include/tabla.h for addresses of 32 bits. */
const [LOAD_OPTIONS_BYTES, GENERATE_OPTIONS_BYTES, PIECE_BYTES] = [136, 184, 40];
const PRECISION_EXACT = 1;
const PROMPT = "Once upon a time";
const TOKENS = 48;

const [file, program, ...paths] = argv.slice(2);
const models = paths.map((path) => resolve(path));
const bytes = readFileSync(file);
const compiled = await WebAssembly.compile(bytes);

/** An instance of the module, and access to its memory. */
class Library {
    static async open() {
        const wasi = new Wasi([], {});
        const { exports } = await WebAssembly.instantiate(compiled, wasi.imports);
        wasi.memory = exports.memory;
        exports.__wasm_call_ctors();
        return new Library(exports);
    }

    constructor(exports) {
        this.exports = exports;
    }

    get view() {
        return new DataView(this.exports.memory.buffer);
    }

    /** Allocates zeros. */
    allocate(count) {
        const at = this.exports.malloc(count);
        assert.notEqual(at, 0);
        new Uint8Array(this.exports.memory.buffer, at, count).fill(0);
        return at;
    }

    string(text) {
        const encoded = new TextEncoder().encode(`${text}\0`);
        const at = this.allocate(encoded.length);
        new Uint8Array(this.exports.memory.buffer, at, encoded.length).set(encoded);
        return at;
    }

    text(at, count) {
        const memory = new Uint8Array(this.exports.memory.buffer);
        return new TextDecoder().decode(memory.subarray(at, count === undefined ? memory.indexOf(0, at) : at + count));
    }

    /** Throws the error of a call that failed. */
    check(status) {
        if (status !== 0) throw new Error(this.text(this.exports.tabla_last_error()));
    }

    /** Loads a model for exact products; throws an error if it is invalid. */
    load(path) {
        const options = this.allocate(LOAD_OPTIONS_BYTES);
        this.view.setUint32(options, LOAD_OPTIONS_BYTES, true);
        this.view.setInt32(options + 8, PRECISION_EXACT, true);
        const model = this.exports.tabla_model_load(this.string(path), options);
        this.check(model === 0 ? 1 : 0);
        return model;
    }

    /** Generates a greedy answer, and returns its text and tokens per second. */
    generate(model, prompt, count) {
        const { exports } = this;
        const session = exports.tabla_model_session(model);
        const options = this.allocate(GENERATE_OPTIONS_BYTES);
        this.check(exports.tabla_generate_options_init(options, GENERATE_OPTIONS_BYTES));
        this.view.setUint32(options + 4, count, true);
        this.view.setFloat32(options + 8, 0, true);
        this.check(exports.tabla_session_begin(session, this.string(prompt), options));
        const piece = this.allocate(PIECE_BYTES);
        let [answer, tokens, begun] = ["", 0, 0];
        for (;;) {
            this.view.setUint32(piece, PIECE_BYTES, true);
            this.check(exports.tabla_session_next(session, piece));
            const [text, length, finish] = [8, 12, 16].map((at) => this.view.getInt32(piece + at, true));
            if (finish !== -1) break;
            answer += this.text(text, length);
            if (tokens++ === 0) begun = performance.now();
        }
        return { answer, rate: ((tokens - 1) * 1000) / (performance.now() - begun) };
    }
}

const brotli = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_LGWIN]: 24 } }).length;
console.log(`size: ${bytes.length} bytes, ${brotli} with brotli`);
assert.ok(brotli <= BROTLI_BYTES_MAX, `at most ${BROTLI_BYTES_MAX} bytes with brotli`);

for (const model of models) {
    const library = await Library.open();
    const { answer, rate } = library.generate(library.load(model), PROMPT, TOKENS);
    const args = ["run", "-m", model, "-p", PROMPT, "-n", String(TOKENS), "--temp", "0", "--device", "cpu", "--precision", "exact", "-q"];
    const native = execFileSync(program, args, { env: { ...env, TABLA_CPU: "scalar" }, encoding: "utf8" });
    assert.notEqual(answer.trim(), "", model);
    assert.equal(answer.trim(), native.trim().replace(PROMPT, "").trim(), model);
    console.log(`${model}: ${rate.toFixed(1)} tokens/s, same text as the scalar kernels`);
}

// Invalid files are errors, after which the same instance goes on.
const library = await Library.open();
assert.throws(() => library.load("/nothing.gguf"), /no such file/);
assert.throws(() => library.load(resolve(file)), /unknown file format/);
assert.throws(() => library.check(library.exports.tabla_free_model(12345)), /handle/);
console.log("ok");
