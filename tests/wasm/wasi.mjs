// The functions of WASI preview 1 that Rust's standard library imports, over Node's file system. Node has a module for
// this, `node:wasi`, with which Node 20 and 22 crash when memory grows.
import * as fs from "node:fs";
import { randomFillSync } from "node:crypto";
import { join } from "node:path";

/** Error numbers: https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md#-errno-variant */
const ERRNO = { EBADF: 8, EEXIST: 20, EINVAL: 28, EIO: 29, EISDIR: 31, ENOENT: 44, ENOSYS: 52, ENOTDIR: 54, ENOTEMPTY: 55 };
const [DIRECTORY, REGULAR, CHARACTERS, SYMLINK, UNKNOWN] = [3, 4, 2, 7, 0];
const [CREATE, DIRECTORY_ONLY, EXCLUSIVE, TRUNCATE] = [1, 2, 4, 8];
const [RIGHT_READ, RIGHT_WRITE] = [2n, 64n];
const APPEND = 1;
/** The descriptor of the root of the file system; programs open all paths from it. */
const ROOT = 3;

/** The program called `exit`. */
export class Exit extends Error {
    constructor(code) {
        super(`exit status ${code}`);
        this.code = code;
    }
}

function type(stat) {
    if (stat.isDirectory()) return DIRECTORY;
    if (stat.isFile()) return REGULAR;
    if (stat.isSymbolicLink()) return SYMLINK;
    return stat.isCharacterDevice() ? CHARACTERS : UNKNOWN;
}

export class Wasi {
    /** Memory of the instance, set before its first call. */
    memory;
    #args;
    #env;
    #files = new Map([0, 1, 2].map((fd) => [fd, { fd, position: null }]));

    constructor(args, env) {
        const bytes = (text) => new TextEncoder().encode(`${text}\0`);
        this.#args = args.map(bytes);
        this.#env = Object.entries(env).map(([name, value]) => bytes(`${name}=${value}`));
        this.#files.set(ROOT, { path: "/" });
    }

    /** The object of imports. */
    get imports() {
        const names = Object.getOwnPropertyNames(Wasi.prototype).filter((name) => name.includes("_"));
        const call = (name) => (...args) => {
            try {
                return this[name](...args) ?? 0;
            } catch (error) {
                if (error instanceof Exit || error instanceof RangeError) throw error;
                return ERRNO[error.code] ?? ERRNO.EIO;
            }
        };
        return { wasi_snapshot_preview1: Object.fromEntries(names.map((name) => [name, call(name)])) };
    }

    get #view() {
        return new DataView(this.memory.buffer);
    }

    #bytes(at, length) {
        return new Uint8Array(this.memory.buffer, at, length);
    }

    /** The absolute path of a path below a directory. */
    #path(fd, at, length) {
        const directory = this.#file(fd).path;
        if (directory === undefined) throw { code: "ENOTDIR" };
        return join(directory, new TextDecoder().decode(this.#bytes(at, length).slice()));
    }

    #file(fd) {
        const file = this.#files.get(fd);
        if (file === undefined) throw { code: "EBADF" };
        return file;
    }

    /** Calls `transfer` for each buffer until one is not filled; writes the number of bytes. */
    #transfer(buffers, count, result, transfer) {
        let total = 0;
        for (let i = 0; i < count; i++) {
            const [at, length] = [0, 4].map((field) => this.#view.getUint32(buffers + 8 * i + field, true));
            const done = length === 0 ? 0 : transfer(this.#bytes(at, length));
            total += done;
            if (done < length) break;
        }
        this.#view.setUint32(result, total, true);
    }

    #writeStrings(strings, pointers, at) {
        strings.forEach((string, i) => {
            this.#view.setUint32(pointers + 4 * i, at, true);
            this.#bytes(at, string.length).set(string);
            at += string.length;
        });
    }

    #writeSizes(strings, count, size) {
        this.#view.setUint32(count, strings.length, true);
        this.#view.setUint32(size, strings.reduce((sum, string) => sum + string.length, 0), true);
    }

    #writeStat(at, stat) {
        const view = this.#view;
        view.setBigUint64(at, stat.dev, true);
        view.setBigUint64(at + 8, stat.ino, true);
        view.setBigUint64(at + 16, BigInt(type(stat)), true);
        view.setBigUint64(at + 24, stat.nlink, true);
        view.setBigUint64(at + 32, stat.size, true);
        [stat.atimeNs, stat.mtimeNs, stat.ctimeNs].forEach((time, i) => view.setBigUint64(at + 40 + 8 * i, time, true));
    }

    args_get(pointers, at) {
        this.#writeStrings(this.#args, pointers, at);
    }

    args_sizes_get(count, size) {
        this.#writeSizes(this.#args, count, size);
    }

    environ_get(pointers, at) {
        this.#writeStrings(this.#env, pointers, at);
    }

    environ_sizes_get(count, size) {
        this.#writeSizes(this.#env, count, size);
    }

    random_get(at, length) {
        randomFillSync(this.#bytes(at, length));
    }

    clock_time_get(clock, _, result) {
        const time = clock === 0 ? BigInt(Date.now()) * 1_000_000n : process.hrtime.bigint();
        this.#view.setBigUint64(result, time, true);
    }

    sched_yield() {}

    /** Waits for the first of the subscriptions, which are clocks: sleeping. */
    poll_oneoff(subscriptions, events, _, result) {
        const timeout = this.#view.getBigUint64(subscriptions + 24, true);
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(timeout) / 1e6);
        this.#bytes(events, 32).fill(0);
        this.#view.setBigUint64(events, this.#view.getBigUint64(subscriptions, true), true);
        this.#view.setUint32(result, 1, true);
    }

    proc_exit(code) {
        throw new Exit(code);
    }

    fd_prestat_get(fd, result) {
        if (fd !== ROOT) return ERRNO.EBADF;
        this.#view.setUint32(result, 0, true);
        this.#view.setUint32(result + 4, 1, true);
    }

    fd_prestat_dir_name(_, at) {
        this.#bytes(at, 1)[0] = "/".charCodeAt(0);
    }

    fd_fdstat_get(fd, result) {
        const { path, fd: host } = this.#file(fd);
        this.#bytes(result, 24).fill(0);
        this.#bytes(result, 1)[0] = path !== undefined ? DIRECTORY : type(fs.fstatSync(host));
        this.#view.setBigUint64(result + 8, 0xffffffffn, true);
        this.#view.setBigUint64(result + 16, 0xffffffffn, true);
    }

    fd_fdstat_set_flags() {}

    fd_filestat_get(fd, result) {
        const { path, fd: host } = this.#file(fd);
        const options = { bigint: true };
        this.#writeStat(result, path !== undefined ? fs.statSync(path, options) : fs.fstatSync(host, options));
    }

    fd_filestat_set_size(fd, size) {
        fs.ftruncateSync(this.#file(fd).fd, Number(size));
    }

    fd_filestat_set_times() {}

    fd_close(fd) {
        const file = this.#file(fd);
        this.#files.delete(fd);
        if (file.fd > 2) fs.closeSync(file.fd);
    }

    fd_sync(fd) {
        const file = this.#file(fd);
        if (file.path === undefined) fs.fsyncSync(file.fd);
    }

    fd_datasync(fd) {
        this.fd_sync(fd);
    }

    fd_read(fd, buffers, count, result) {
        const file = this.#file(fd);
        this.#transfer(buffers, count, result, (bytes) => {
            const read = fs.readSync(file.fd, bytes, 0, bytes.length, file.position);
            if (file.position !== null) file.position += read;
            return read;
        });
    }

    fd_pread(fd, buffers, count, offset, result) {
        let position = Number(offset);
        this.#transfer(buffers, count, result, (bytes) => {
            const read = fs.readSync(this.#file(fd).fd, bytes, 0, bytes.length, position);
            position += read;
            return read;
        });
    }

    fd_write(fd, buffers, count, result) {
        const file = this.#file(fd);
        this.#transfer(buffers, count, result, (bytes) => {
            const written = fs.writeSync(file.fd, bytes, 0, bytes.length, file.append ? null : file.position);
            if (file.position !== null) file.position += written;
            return written;
        });
    }

    fd_pwrite(fd, buffers, count, offset, result) {
        let position = Number(offset);
        this.#transfer(buffers, count, result, (bytes) => {
            const written = fs.writeSync(this.#file(fd).fd, bytes, 0, bytes.length, position);
            position += written;
            return written;
        });
    }

    fd_seek(fd, offset, whence, result) {
        const file = this.#file(fd);
        const start = [0, file.position, () => fs.fstatSync(file.fd).size][whence];
        const position = Number(offset) + (typeof start === "function" ? start() : start);
        if (!(position >= 0)) return ERRNO.EINVAL;
        file.position = position;
        this.#view.setBigUint64(result, BigInt(position), true);
    }

    fd_tell(fd, result) {
        this.#view.setBigUint64(result, BigInt(this.#file(fd).position), true);
    }

    fd_readdir(fd, at, length, cookie, result) {
        const { path } = this.#file(fd);
        const entries = fs.readdirSync(path, { withFileTypes: true });
        let used = 0;
        for (let i = Number(cookie); i < entries.length && used < length; i++) {
            const name = new TextEncoder().encode(entries[i].name);
            const entry = new Uint8Array(24 + name.length);
            const view = new DataView(entry.buffer);
            view.setBigUint64(0, BigInt(i + 1), true);
            view.setUint32(16, name.length, true);
            view.setUint32(20, type(entries[i]), true);
            entry.set(name, 24);
            const part = entry.subarray(0, length - used);
            this.#bytes(at + used, part.length).set(part);
            used += part.length;
        }
        this.#view.setUint32(result, used, true);
    }

    path_open(directory, _, at, length, flags, rights, __, descriptorFlags, result) {
        const path = this.#path(directory, at, length);
        const writes = (rights & RIGHT_WRITE) !== 0n;
        const reads = (rights & RIGHT_READ) !== 0n;
        const { O_RDONLY, O_RDWR, O_WRONLY, O_CREAT, O_EXCL, O_TRUNC, O_APPEND } = fs.constants;
        const stat = fs.statSync(path, { throwIfNoEntry: false });
        if ((flags & DIRECTORY_ONLY) !== 0 && stat !== undefined && !stat.isDirectory()) return ERRNO.ENOTDIR;
        const append = (descriptorFlags & APPEND) !== 0;
        const access = writes ? (reads ? O_RDWR : O_WRONLY) : O_RDONLY;
        const options = [[CREATE, O_CREAT], [EXCLUSIVE, O_EXCL], [TRUNCATE, O_TRUNC]];
        const chosen = options.filter(([flag]) => (flags & flag) !== 0).map(([, host]) => host);
        const isFolder = stat?.isDirectory() && (flags & CREATE) === 0;
        const file = isFolder
            ? { path }
            : { fd: fs.openSync(path, [access, append ? O_APPEND : 0, ...chosen].reduce((a, b) => a | b)), position: 0, append };
        let fd = ROOT + 1;
        while (this.#files.has(fd)) fd++;
        this.#files.set(fd, file);
        this.#view.setUint32(result, fd, true);
    }

    path_filestat_get(directory, flags, at, length, result) {
        const path = this.#path(directory, at, length);
        const stat = (flags & 1) !== 0 ? fs.statSync : fs.lstatSync;
        this.#writeStat(result, stat(path, { bigint: true }));
    }

    path_filestat_set_times() {}

    path_create_directory(directory, at, length) {
        fs.mkdirSync(this.#path(directory, at, length));
    }

    path_remove_directory(directory, at, length) {
        fs.rmdirSync(this.#path(directory, at, length));
    }

    path_unlink_file(directory, at, length) {
        fs.unlinkSync(this.#path(directory, at, length));
    }

    path_rename(directory, at, length, other, to, toLength) {
        fs.renameSync(this.#path(directory, at, length), this.#path(other, to, toLength));
    }

    path_readlink(directory, at, length, to, capacity, result) {
        const target = new TextEncoder().encode(fs.readlinkSync(this.#path(directory, at, length))).subarray(0, capacity);
        this.#bytes(to, target.length).set(target);
        this.#view.setUint32(result, target.length, true);
    }

    path_symlink(at, length, directory, to, toLength) {
        const target = new TextDecoder().decode(this.#bytes(at, length).slice());
        fs.symlinkSync(target, this.#path(directory, to, toLength));
    }

    path_link(directory, _, at, length, other, to, toLength) {
        fs.linkSync(this.#path(directory, at, length), this.#path(other, to, toLength));
    }
}
