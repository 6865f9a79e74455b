// Executes kernels in Dawn for tests/it/gpu/dawn.rs.
//
//   node device.mjs FOLDER        FOLDER/node_modules has the package `webgpu`
//
// Reads commands from stdin: the length of a JSON array in bytes, four bytes, then the array, [name, argument ...].
// A string of bytes that a command needs follows it; its length is the last argument.
// Replies only to `read`, with the bytes. After an error it prints a message and exits with status 1.

import { readSync, writeSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const folder = resolve(process.argv[2]);
const { create, globals } = await import(pathToFileURL(join(folder, "node_modules/webgpu/index.js")).href);
const { GPUBufferUsage, GPUMapMode, GPUShaderStage } = globals;

function fail(message) {
  console.error(`dawn: ${message}`);
  process.exit(1);
}

const gpu = create(["backend=vulkan"]);
const adapter = (await gpu.requestAdapter()) ?? fail("no adapter");
// Other limits are those that every browser has, but kernels with matrices have more workgroup memory.
const { maxComputeWorkgroupStorageSize } = adapter.limits;
const device = await adapter.requestDevice({
  requiredFeatures: ["subgroups", "shader-f16"].filter((feature) => adapter.features.has(feature)),
  requiredLimits: { maxImmediateSize: 64, maxComputeWorkgroupStorageSize },
});
device.addEventListener("uncapturederror", ({ error }) => fail(error.message));

const kernels = new Map();
const buffers = new Map();

/** Commands by name; `bytes` is the string of bytes of a command. */
const commands = {
  kernel(name, readOnly, immediateSize, bytes) {
    const module = device.createShaderModule({ code: Buffer.from(bytes).toString() });
    const entries = readOnly.map((isReadOnly, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: isReadOnly ? "read-only-storage" : "storage" },
    }));
    const layout = device.createBindGroupLayout({ entries });
    const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout], immediateSize });
    const pipeline = device.createComputePipeline({ layout: pipelineLayout, compute: { module } });
    kernels.set(name, { layout, pipeline });
  },
  buffer(id, size) {
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    buffers.set(id, device.createBuffer({ size, usage }));
  },
  free(id) {
    buffers.get(id).destroy();
    buffers.delete(id);
  },
  write(id, offset, bytes) {
    device.queue.writeBuffer(buffers.get(id), offset, bytes);
  },
  run(name, ids, grid, params) {
    const { layout, pipeline } = kernels.get(name);
    const entries = ids.map((id, binding) => ({ binding, resource: { buffer: buffers.get(id) } }));
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
    pass.setImmediates(0, params);
    pass.dispatchWorkgroups(...grid);
    pass.end();
    device.queue.submit([encoder.finish()]);
  },
  async read(id, offset, size) {
    const staging = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffers.get(id), offset, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const bytes = new Uint8Array(staging.getMappedRange());
    for (let at = 0; at < size; ) at += writeSync(1, bytes, at);
    staging.destroy();
  },
};

/** Reads a number of bytes from stdin; undefined at the end. */
function readBytes(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; ) {
    const count = readSync(0, bytes, at, size - at, null);
    if (count === 0) return undefined;
    at += count;
  }
  return bytes;
}

const WITH_BYTES = ["kernel", "write", "run"];
for (let head; (head = readBytes(4)); ) {
  const size = new DataView(head.buffer).getUint32(0, true);
  const [name, ...args] = JSON.parse(Buffer.from(readBytes(size)).toString());
  if (WITH_BYTES.includes(name)) args.push(readBytes(args.pop()));
  await commands[name](...args);
}
process.exit(0);
