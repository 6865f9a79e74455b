//! Tags of call bodies with an element for each argument.

/// Tags of a call body with an element for each argument.
#[derive(Debug)]
pub(super) struct Tags {
    /// Text before and after the body.
    pub(super) around: &'static str,
    /// Texts before and after the tool's name.
    pub(super) name: [&'static str; 2],
    /// Text that a name cannot contain.
    pub(super) end_of_name: &'static str,
    /// Texts before and after the name of an argument. The value follows.
    pub(super) key: [&'static str; 2],
    /// Text that the name of an argument cannot contain.
    pub(super) end_of_key: &'static str,
    /// Text after a value. A value cannot contain the tag in it.
    pub(super) end_of_value: &'static str,
    /// Text after an element.
    pub(super) after: &'static str,
    /// Text after the last element.
    pub(super) end: &'static str,
}

/// GLM 4.7
pub(super) static GLM: Tags = Tags {
    around: "",
    name: ["", ""],
    end_of_name: "<",
    key: ["<arg_key>", "</arg_key><arg_value>"],
    end_of_key: "<",
    end_of_value: "</arg_value>",
    after: "",
    end: "",
};

/// GLM 4.5 and 4.6, with line breaks between the tags
pub(super) static GLM_4_5: Tags = Tags {
    name: ["", "\n"],
    key: ["<arg_key>", "</arg_key>\n<arg_value>"],
    after: "\n",
    ..GLM
};

/// Qwen 3.5, Qwen 3 Coder
pub(super) static QWEN: Tags = Tags {
    around: "\n",
    name: ["<function=", ">\n"],
    end_of_name: ">",
    key: ["<parameter=", ">\n"],
    end_of_key: ">",
    end_of_value: "\n</parameter>",
    after: "\n",
    end: "</function>",
};
