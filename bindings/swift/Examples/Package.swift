// swift-tools-version: 6.0
// Example programs: `swift run story`, `swift run chat model.gguf`.

import PackageDescription

let package = Package(
    name: "Examples",
    platforms: [.macOS(.v14)],
    dependencies: [.package(name: "Tabla", path: "..")],
    targets: [
        .executableTarget(name: "story", dependencies: [.product(name: "Tabla", package: "Tabla")]),
        .executableTarget(name: "chat", dependencies: [.product(name: "Tabla", package: "Tabla")]),
    ]
)
