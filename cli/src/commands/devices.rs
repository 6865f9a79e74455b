//! `tabla devices`: the devices and their features.

use crate::output::Failure;
use crate::output::terminal;
use clap::Args;
use tabla::device::{AdapterFacts, Profile};

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let devices = tabla::load::devices()?;
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
        terminal::note("no GPU: no Vulkan, Metal or DX12 adapter found");
    }
    Ok(())
}

/// Returns the name of the CPU and lines with its properties.
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

/// Returns the name of the adapter and lines with its properties.
fn gpu(gpu: &AdapterFacts) -> Vec<String> {
    let list = |items: &[&str]| match items {
        [] => "none".to_string(),
        items => items.join(", "),
    };
    let lacks: Vec<&str> = gpu.lacks.iter().map(String::as_str).collect();
    let [min, max] = gpu.subgroup_sizes;
    let verdict = match (lacks.is_empty(), gpu.kind) {
        (false, _) => "unsupported",
        (true, "software") => "software adapter: only with --device gpu",
        (true, _) => "supported",
    };
    vec![
        format!("gpu: {} ({}, {})", gpu.name, gpu.backend, gpu.kind),
        format!("driver     {}, vendor 0x{:04x}", gpu.driver, gpu.vendor),
        format!(
            "buffers    at most {}, {} per binding",
            terminal::bytes(gpu.buffer_bytes_max),
            terminal::bytes(gpu.binding_bytes_max)
        ),
        format!(
            "workgroup  {}",
            terminal::bytes(gpu.workgroup_bytes_max.into())
        ),
        format!("subgroups  {min} to {max} lanes"),
        format!("features   {}", list(&gpu.features)),
        format!("without    {}", list(&gpu.without)),
        format!("missing    {}", list(&lacks)),
        format!("verdict    {verdict}"),
    ]
}
