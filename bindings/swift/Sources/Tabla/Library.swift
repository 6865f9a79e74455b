// Version, devices and log messages of the library.

internal import CTabla
import Foundation

/// The library itself.
public enum Library {
    /// Version of the library, for example `0.1.0`.
    public static var version: String { String(cString: tabla_version()) }

    /// Returns the devices of this machine as a JSON object: `cpu`, and `gpus` in the order of
    /// their numbers for `LoadOptions.adapter`.
    public static func devices() async throws -> String {
        try await blocking { try String(callForArray { tabla_device_list($0, $1, $2) }) }
    }

    /// Level of log messages. Each level includes the previous ones.
    public struct LogLevel: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let off = LogLevel(rawValue: TABLA_LOG_OFF)
        public static let error = LogLevel(rawValue: TABLA_LOG_ERROR)
        public static let warn = LogLevel(rawValue: TABLA_LOG_WARN)
        public static let info = LogLevel(rawValue: TABLA_LOG_INFO)
        public static let debug = LogLevel(rawValue: TABLA_LOG_DEBUG)
    }

    /// Sets the function that receives log messages of all models, from any thread. It replaces the previous
    /// function, and must not call the library.
    public static func setLog(
        _ level: LogLevel, _ log: @escaping @Sendable (LogLevel, String) -> Void
    ) throws {
        let listener = Listener(log)
        try current.with { current in
            try check(
                tabla_log_set_callback(
                    level.rawValue,
                    { level, message, listener in
                        let listener = Unmanaged<Listener>.fromOpaque(listener!).takeUnretainedValue()
                        listener.log(LogLevel(rawValue: level), String(cString: message!))
                    },
                    Unmanaged.passUnretained(listener).toOpaque()))
            // The previous listener is not called after the call returns, so it can be released.
            current = listener
        }
    }

    /// Makes truncated model files errors: a call that reads a page of a mapped file that is no longer there throws
    /// `io`, and so do later calls with that model, instead of the process being ended by `SIGBUS`. Installs a handler
    /// of `SIGBUS` for the whole process, which passes other faults on to the handler that was installed before.
    public static func catchFileFaults() throws {
        try check(tabla_catch_file_faults())
    }

    private static let current = Locked<Listener?>(nil)

    private final class Listener: Sendable {
        let log: @Sendable (LogLevel, String) -> Void
        init(_ log: @escaping @Sendable (LogLevel, String) -> Void) { self.log = log }
    }

    /// Throws if the ABI version of the library differs from that of the header.
    static func checkVersion() throws {
        let version = tabla_abi_version()
        if version != TABLA_ABI_VERSION {
            throw TablaError(
                code: .unsupported,
                message: "expected ABI version \(TABLA_ABI_VERSION) of the library, got \(version)")
        }
    }
}
