// swift-tools-version: 6.0
// Tabla for Swift. The C library is a bundle next to this file, or otherwise the library of the system.

import Foundation
import PackageDescription

/// Bundle made by scripts/xcframework.sh or scripts/artifactbundle.sh, if there is one.
let bundle = ["CTabla.xcframework", "CTabla.artifactbundle"].first {
    FileManager.default.fileExists(atPath: Context.packageDirectory + "/" + $0)
}

let library: Target =
    if let bundle {
        .binaryTarget(name: "CTabla", path: bundle)
    } else {
        .systemLibrary(name: "CTabla", pkgConfig: "tabla")
    }

/// Libraries that the static library of a bundle depends on. A shared library links them itself.
let linux = ["pthread", "dl", "m", "gcc_s"]
let apple = ["CoreFoundation", "CoreGraphics", "Foundation", "IOSurface", "Metal", "QuartzCore"]
let native: [LinkerSetting] =
    bundle == nil
    ? []
    : linux.map { .linkedLibrary($0, .when(platforms: [.linux])) }
        + apple.map { .linkedFramework($0, .when(platforms: [.macOS, .iOS])) }
        + [.linkedLibrary("objc", .when(platforms: [.macOS, .iOS]))]

let package = Package(
    name: "Tabla",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [.library(name: "Tabla", targets: ["Tabla"])],
    targets: [
        library,
        .target(name: "Tabla", dependencies: ["CTabla"], linkerSettings: native),
        .testTarget(name: "TablaTests", dependencies: ["Tabla"]),
    ]
)
