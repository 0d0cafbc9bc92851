import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const markup = "What agents say is text and never markup.";

export default defineConfig(
  { ignores: ["build", "dist", "node_modules", "screenshots-out"] },
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["eslint.config.js"] } } },
    rules: {
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: markup },
        { selector: "Property[key.name='dangerouslySetInnerHTML']", message: markup },
        { selector: "MemberExpression[property.name=/^(innerHTML|outerHTML|insertAdjacentHTML|srcdoc)$/]", message: markup },
        { selector: "MemberExpression[object.name='document'][property.name=/^(write|writeln)$/]", message: markup },
        { selector: "CallExpression[callee.name='eval'], NewExpression[callee.name='Function']", message: markup },
      ],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      // Bounds are proved by the line before; with noUncheckedIndexedAccess the alternative is a branch nobody takes.
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/no-confusing-void-expression": [
        "error",
        { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true, ignoreVoidOperator: true },
      ],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
    },
  },
  {
    files: ["tests/**"],
    rules: {
      // node:test gives promises to its runner, which waits for them.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", name: ["test", "before", "after", "describe"], package: "node:test" }] },
      ],
    },
  },
);
