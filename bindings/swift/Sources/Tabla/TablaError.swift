// Errors of the library.

internal import CTabla
import Foundation

/// An error of the library. Functions of this package throw it, or `CancellationError` if their
/// task was cancelled.
public struct TablaError: LocalizedError, Equatable, Sendable {
    /// Error code.
    public let code: Code
    /// Description of the error and its location.
    public let message: String

    public var errorDescription: String? { message }

    /// A status code of the C ABI; docs/ABI.md lists them. A code without a name here is an error,
    /// too.
    public struct Code: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        init<C: RawRepresentable>(_ constant: C) where C.RawValue: BinaryInteger {
            rawValue = Int32(constant.rawValue)
        }

        public var description: String {
            String(cString: tabla_status_name(rawValue))
        }

        public static let argument = Code(TABLA_ERROR_ARGUMENT)
        public static let io = Code(TABLA_ERROR_IO)
        public static let format = Code(TABLA_ERROR_FORMAT)
        public static let unsupported = Code(TABLA_ERROR_UNSUPPORTED)
        public static let tooLarge = Code(TABLA_ERROR_TOO_LARGE)
        public static let tokenizer = Code(TABLA_ERROR_TOKENIZER)
        public static let grammar = Code(TABLA_ERROR_GRAMMAR)
        public static let memory = Code(TABLA_ERROR_MEMORY)
        public static let device = Code(TABLA_ERROR_DEVICE)
        public static let deviceLost = Code(TABLA_ERROR_DEVICE_LOST)
        public static let cancelled = Code(TABLA_ERROR_CANCELLED)
        public static let state = Code(TABLA_ERROR_STATE)
        public static let `internal` = Code(TABLA_ERROR_INTERNAL)
        public static let panic = Code(TABLA_ERROR_PANIC)
        public static let handle = Code(TABLA_ERROR_HANDLE)
        public static let busy = Code(TABLA_ERROR_BUSY)
        public static let reentrant = Code(TABLA_ERROR_REENTRANT)
        public static let poisoned = Code(TABLA_ERROR_POISONED)
        public static let forked = Code(TABLA_ERROR_FORKED)
    }
}

// The error message belongs to the thread of the call, and a task may continue on another thread after an
// `await`. Therefore call the library and one of these two functions in the same synchronous function.

/// Throws the error of a status, unless it is `TABLA_OK`.
func check(_ status: TablaStatus) throws {
    if status != TABLA_OK {
        throw TablaError(
            code: .init(rawValue: status), message: String(cString: tabla_last_error()))
    }
}

/// Returns the handle, or throws the last error if it is NULL.
func checkHandle(_ pointer: OpaquePointer?) throws -> OpaquePointer {
    guard let pointer else {
        try check(tabla_last_error_code())
        preconditionFailure("NULL handle without an error code")
    }
    return pointer
}
