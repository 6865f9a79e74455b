//! Tests of the registry.

use super::{Loaded, Registry};
use crate::config::{Config, ModelConfig, ServerEvent};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};
use tabla::load::{DeviceChoice, WeightMemory};
use tabla::{Overflow, Source};

/// Both loads would need twice the memory.
#[tokio::test]
async fn a_changed_model_is_dropped_before_it_is_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.gguf");
    let content = include_bytes!("../../../../../models/story.gguf");
    std::fs::write(&file, content).unwrap();
    let mut config = Config::new(vec![ModelConfig {
        name: "story".to_string(),
        aliases: Vec::new(),
        source: Source::from(&file),
        chat_template: None,
        template_variables: Default::default(),
        overflow: Overflow::Stop,
    }]);
    let load = config.load.device(DeviceChoice::Cpu).max_context(64);
    config.load = load.weights(WeightMemory::Mapped);
    let old: Arc<Mutex<Weak<Loaded>>> = Arc::default();
    let alive = Arc::new(Mutex::new(Vec::new()));
    let seen = (Arc::clone(&old), Arc::clone(&alive));
    config.events = Arc::new(move |event| {
        if let ServerEvent::Loading(..) = event {
            let is_alive = seen.0.lock().unwrap().strong_count() > 0;
            seen.1.lock().unwrap().push(is_alive);
        }
    });
    let registry = Arc::new(Registry::new(&config).unwrap());
    let lease = registry.lease(None).await.unwrap();
    *old.lock().unwrap() = Arc::downgrade(&lease.model());
    drop(lease);
    alive.lock().unwrap().clear();
    let written = std::fs::File::options().append(true).open(&file).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    written.set_modified(later).unwrap();
    drop(registry.lease(None).await.unwrap());
    let alive = alive.lock().unwrap();
    assert!(!alive.is_empty(), "the model is loaded again");
    assert!(alive.iter().all(|is_alive| !is_alive), "{alive:?}");
}
