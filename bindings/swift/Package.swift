// swift-tools-version: 6.0
// Tabla for Swift. The C library is a bundle that lies beside this file, else the one of the system.

import Foundation
import PackageDescription

/// What scripts/xcframework.sh and scripts/artifactbundle.sh make, the first that is there.
let bundle = ["CTabla.xcframework", "CTabla.artifactbundle"].first {
    FileManager.default.fileExists(atPath: Context.packageDirectory + "/" + $0)
}

let library: Target =
    if let bundle {
        .binaryTarget(name: "CTabla", path: bundle)
    } else {
        .systemLibrary(name: "CTabla", pkgConfig: "tabla")
    }

/// What the static library of a bundle needs; a shared library brings it along.
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
