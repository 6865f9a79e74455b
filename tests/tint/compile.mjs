// Compiles the kernels of FOLDER/kernels with Tint, and prints its errors with the lines.
//
//   node compile.mjs FOLDER [--device] [PATTERN]
//
// FOLDER/node_modules has the package `webgpu`. Exits with status 1 if a kernel is invalid.

import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const options = process.argv.slice(3);
const onDevice = options.includes("--device");
const pattern = new RegExp(options.find((option) => !option.startsWith("--")) ?? "");
const folder = resolve(process.argv[2]);
const { create } = await import(pathToFileURL(join(folder, "node_modules/webgpu/index.js")).href);

const gpu = create([`backend=${onDevice ? "vulkan" : "null"}`]);
const adapter = await gpu.requestAdapter();
if (!adapter) {
  console.error("Dawn has no adapter; it needs a newer driver than lavapipe of Mesa 22.3");
  process.exit(1);
}
// Other limits are those that every browser has.
const device = await adapter.requestDevice({
  requiredFeatures: ["subgroups", "shader-f16"],
  requiredLimits: { maxImmediateSize: 64 },
});

/** Compiles a kernel; returns its errors. */
async function compile(code) {
  device.pushErrorScope("validation");
  device.pushErrorScope("internal");
  const module = device.createShaderModule({ code });
  device.createComputePipeline({ layout: "auto", compute: { module } });
  const scopes = [await device.popErrorScope(), await device.popErrorScope()];
  const { messages } = await module.getCompilationInfo();
  const lines = code.split("\n");
  const errors = messages.filter((message) => message.type === "error");
  const texts = errors.map((e) => `line ${e.lineNum}: ${e.message}\n    ${lines[e.lineNum - 1]?.trim()}`);
  const others = scopes.filter((error) => error).map((error) => error.message);
  return texts.length > 0 ? texts : others;
}

// The types and functions of cooperative matrices are extensions of naga.
const names = readdirSync(join(folder, "kernels")).filter((name) => pattern.test(name));
const kernels = names.filter((name) => !name.includes("matrix"));
let failed = 0;
for (const name of kernels) {
  const errors = await compile(readFileSync(join(folder, "kernels", name), "utf8"));
  failed += errors.length > 0;
  errors.forEach((error) => console.log(`${name}: ${error}`));
}
const excluded = names.length - kernels.length;
console.log(`${kernels.length} kernels, ${failed} with errors; ${excluded} with cooperative matrices not compiled`);
process.exit(failed > 0 ? 1 : 0);
