//! `tabla devices`: what the tables could be linked to, and what each device has and lacks.

use crate::output::Failure;
use crate::output::terminal;
use clap::Args;
use tabla::{AdapterFacts, Profile};

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Writes one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let devices = tabla::devices()?;
    if args.json {
        return terminal::line(&devices.json().to_string());
    }
    let mut blocks = vec![cpu(&devices.cpu)];
    blocks.extend(devices.gpus.iter().map(gpu));
    for lines in blocks {
        for (at, line) in lines.iter().enumerate() {
            let indent = if at == 0 { "" } else { "  " };
            terminal::line(&format!("{indent}{}", terminal::one_line(line)))?;
        }
    }
    if devices.gpus.is_empty() {
        terminal::note("no GPU: no adapter of Vulkan, Metal or DX12 was found");
    }
    Ok(())
}

/// A line that names the CPU, and lines about it.
fn cpu(cpu: &Profile) -> Vec<String> {
    let cache = match cpu.cache_bytes {
        0 => "unknown".to_string(),
        n => terminal::bytes(n),
    };
    vec![
        format!("cpu: {}", cpu.name),
        format!("SIMD       {}", cpu.backend),
        format!("threads    {}", cpu.threads),
        format!("cache      {cache}"),
    ]
}

/// A line that names the adapter, and lines about it.
fn gpu(gpu: &AdapterFacts) -> Vec<String> {
    let list = |items: &[&str]| match items {
        [] => "none".to_string(),
        items => items.join(", "),
    };
    let lacks: Vec<&str> = gpu.lacks.iter().map(String::as_str).collect();
    let [least, most] = gpu.subgroup_sizes;
    let verdict = match (lacks.is_empty(), gpu.kind) {
        (false, _) => "cannot be used",
        (true, "software") => "only with --device gpu: it is software",
        (true, _) => "can be used",
    };
    vec![
        format!("gpu: {} ({}, {})", gpu.name, gpu.backend, gpu.kind),
        format!("driver     {}, vendor 0x{:04x}", gpu.driver, gpu.vendor),
        format!(
            "buffers    {} at most, {} in a binding",
            terminal::bytes(gpu.buffer_bytes_max),
            terminal::bytes(gpu.binding_bytes_max)
        ),
        format!(
            "workgroup  {}",
            terminal::bytes(gpu.workgroup_bytes_max.into())
        ),
        format!("subgroups  {least} to {most} lanes"),
        format!("has        {}", list(&gpu.features)),
        format!("without    {}", list(&gpu.without)),
        format!("lacks      {}", list(&lacks)),
        format!("verdict    {verdict}"),
    ]
}
