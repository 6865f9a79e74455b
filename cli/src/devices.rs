//! `tabla devices`: what the tables could be linked to, and what each device has and lacks.

use crate::args::DevicesArgs;
use crate::failure::Failure;
use crate::terminal;
use serde_json::{Value, json};
use tabla::{DeviceKind, Profile};

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let devices = tabla::devices();
    if args.json {
        let devices: Vec<Value> = devices.iter().map(object).collect();
        return terminal::line(&Value::from(devices).to_string());
    }
    for device in &devices {
        terminal::line(&terminal::one_line(&device.to_string()))?;
        for line in facts(device) {
            terminal::line(&format!("  {line}"))?;
        }
    }
    if devices.iter().all(|device| device.kind == DeviceKind::Cpu) {
        terminal::note("no GPU: no adapter of Vulkan, Metal or DX12 was found");
    }
    Ok(())
}

/// The backend as benchmarks name it.
pub(crate) fn backend(profile: &Profile) -> String {
    match (profile.kind, profile.backend.as_str()) {
        (DeviceKind::Cpu, _) => "CPU".to_string(),
        (DeviceKind::Gpu, "vulkan") => "Vulkan".to_string(),
        (DeviceKind::Gpu, "metal") => "Metal".to_string(),
        (DeviceKind::Gpu, "dx12") => "DX12".to_string(),
        (DeviceKind::Gpu, other) => other.to_string(),
    }
}

fn facts(device: &Profile) -> Vec<String> {
    let known = |number: u64, text: String| {
        if number == 0 {
            "unknown".to_string()
        } else {
            text
        }
    };
    let cache = known(device.cache_bytes, terminal::bytes(device.cache_bytes));
    let batch = format!(
        "passes      {} tokens of a prompt, {} generated tokens a submission",
        device.chunk_tokens, device.chain_tokens
    );
    match device.kind {
        DeviceKind::Cpu => vec![
            format!("SIMD        {}", device.backend),
            format!("threads     {}", device.threads),
            format!("cache       {cache}"),
            batch,
        ],
        DeviceKind::Gpu => vec![
            format!("vendor      0x{:04x}", device.vendor),
            format!(
                "binding     {} at most, {} in a kernel",
                terminal::bytes(device.binding_bytes_max),
                device.bindings_max
            ),
            format!("grid        {} workgroups in a dimension", device.grid_max),
            format!(
                "subgroup    {}",
                known(
                    device.subgroup_size.into(),
                    format!("{} lanes", device.subgroup_size)
                )
            ),
            format!(
                "f16         {}",
                if device.f16 { "in shaders" } else { "lacking" }
            ),
            batch,
        ],
    }
}

fn object(device: &Profile) -> Value {
    json!({
        "kind": match device.kind {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        },
        "name": device.name,
        "backend": device.backend,
        "threads": device.threads,
        "cache_bytes": device.cache_bytes,
        "vendor": device.vendor,
        "grid_max": device.grid_max,
        "binding_bytes_max": device.binding_bytes_max,
        "bindings_max": device.bindings_max,
        "subgroup_size": device.subgroup_size,
        "f16": device.f16,
        "chunk_tokens": device.chunk_tokens,
        "chain_tokens": device.chain_tokens,
    })
}
