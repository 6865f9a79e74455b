// The API reference: a list of endpoints with the fields of their requests, from openapi.json.

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.oneOf ?? schema.anyOf;
  if (options) return options.map(typeOf).filter((type) => type !== "").join(" or ");
  const type = [].concat(schema.type ?? "any").filter((name) => name !== "null").join(" or ");
  return type === "array" ? `list of ${typeOf(schema.items ?? {})}` : type;
}

/** Text with names between backticks as code. */
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

function fields(schemas, body) {
  const rows = [];
  for (const part of body.allOf) {
    const schema = schemas[part.$ref.split("/").pop()];
    for (const [name, field] of Object.entries(schema.properties ?? {})) {
      rows.push(element("tr", {},
        element("th", { scope: "row" }, element("code", {}, name)),
        element("td", {}, typeOf(field)),
        element("td", {}, ...withCode(field.description ?? ""))));
    }
  }
  const head = ["field", "type", "meaning"].map((text) => element("th", { scope: "col" }, text));
  return element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Fields" },
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
}

const main = document.getElementById("reference");
try {
  const document = await (await fetch("openapi.json", { headers: key() })).json();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const summary = element("summary", {}, element("b", {}, method.toUpperCase()), " ", element("code", {}, path), ` ${operation.summary}`);
      const body = operation.requestBody?.content["application/json"].schema;
      const details = element("details", {}, summary);
      if (body) details.append(fields(document.components.schemas, body));
      main.append(details);
    }
  }
} catch (error) {
  main.append(element("p", { role: "alert" }, `The description cannot be loaded: ${error.message}`));
}

// The key that the chat page keeps for this tab.
function key() {
  const value = sessionStorage.getItem("tabla.key");
  return value ? { Authorization: `Bearer ${value}` } : {};
}
