// What there is without a model: the library's version, its devices, its log.

internal import CTabla
import Foundation

/// The library itself.
public enum Library {
    /// Its version, like `0.1.0`.
    public static var version: String { String(cString: tabla_version()) }

    /// What models can run on here, as a JSON object: `cpu`, and `gpus` in the order of their numbers, by
    /// which `LoadOptions.adapter` takes them.
    public static func devices() async throws -> String {
        try await blocking { try String(filled { tabla_devices($0, $1, $2) }) }
    }

    /// How much is said to a log; each level has those in front of it.
    public struct LogLevel: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        public static let off = LogLevel(rawValue: TABLA_LOG_OFF)
        public static let error = LogLevel(rawValue: TABLA_LOG_ERROR)
        public static let warn = LogLevel(rawValue: TABLA_LOG_WARN)
        public static let info = LogLevel(rawValue: TABLA_LOG_INFO)
        public static let debug = LogLevel(rawValue: TABLA_LOG_DEBUG)
    }

    /// Has `hear` told what the library says, of all models and from any thread, in the place of whoever
    /// was told before. From inside it nothing of the library may be called.
    public static func setLog(
        _ level: LogLevel, _ hear: @escaping @Sendable (LogLevel, String) -> Void
    ) throws {
        let listener = Listener(hear)
        try current.with { current in
            try check(
                tabla_set_log_callback(
                    level.rawValue,
                    { level, message, listener in
                        let listener = Unmanaged<Listener>.fromOpaque(listener!).takeUnretainedValue()
                        listener.hear(LogLevel(rawValue: level), String(cString: message!))
                    },
                    Unmanaged.passUnretained(listener).toOpaque()))
            // The one before is not called any more when the call returns, and may go.
            current = listener
        }
    }

    private static let current = Locked<Listener?>(nil)

    private final class Listener: Sendable {
        let hear: @Sendable (LogLevel, String) -> Void
        init(_ hear: @escaping @Sendable (LogLevel, String) -> Void) { self.hear = hear }
    }

    /// Refuses a library of another ABI than that of the header that this was compiled with.
    static func checkVersion() throws {
        let found = tabla_abi_version()
        if found != TABLA_ABI_VERSION {
            throw TablaError(
                code: .unsupported,
                message: "the library has ABI \(found), and this was compiled for \(TABLA_ABI_VERSION)")
        }
    }
}
