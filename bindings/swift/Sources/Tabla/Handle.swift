// Where values of Swift become those of C, and back.

internal import CTabla
import Foundation

/// A handle, which is freed with its last owner.
///
/// It is a number that the library looks up under a lock of its own, never memory that is followed, and
/// any thread may use it: hence it may be sent anywhere, whatever the compiler knows of it.
final class Handle: @unchecked Sendable {
    let pointer: OpaquePointer
    private let free: @Sendable (OpaquePointer) -> TablaStatus

    init(_ pointer: OpaquePointer?, free: @escaping @Sendable (OpaquePointer) -> TablaStatus) throws {
        self.pointer = try made(pointer)
        self.free = free
    }

    deinit {
        _ = free(pointer)
    }
}

/// Lends texts as C strings; nil is NULL.
func withCStrings<R>(
    _ texts: [String?],
    _ body: (UnsafeBufferPointer<UnsafePointer<CChar>?>) throws -> R
) throws -> R {
    for text in texts.compactMap({ $0?.utf8 }) {
        if let end = text.firstIndex(of: 0) {
            let at = text.distance(from: text.startIndex, to: end)
            throw TablaError(code: .argument, message: "a text has a NUL at byte \(at)")
        }
    }
    let copies = texts.map { text in text.map { UnsafePointer(strdup($0)!) } }
    defer { for copy in copies { free(UnsafeMutablePointer(mutating: copy)) } }
    return try copies.withUnsafeBufferPointer(body)
}

/// Lends one text as a C string; nil is NULL.
func withCString<R>(_ text: String?, _ body: (UnsafePointer<CChar>?) throws -> R) throws -> R {
    try withCStrings([text]) { try body($0[0]) }
}

/// The values that a function of the library writes, which is asked first how many there are.
func filled<T>(
    _ call: (UnsafeMutablePointer<T>?, Int, UnsafeMutablePointer<Int>) throws -> TablaStatus
) throws -> [T] {
    var count = 0
    try check(call(nil, 0, &count))
    return try [T](unsafeUninitializedCapacity: count) { room, written in
        try check(call(room.baseAddress, room.count, &count))
        written = count
    }
}

extension String {
    /// A text out of bytes of the library; what is no UTF-8 becomes U+FFFD.
    init(_ bytes: some Collection<CChar>) {
        self.init(decoding: bytes.lazy.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    /// A text out of a field of characters with a NUL at its end.
    init<Field>(field: Field) {
        self = withUnsafeBytes(of: field) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
}
