use super::*;
use crate::agents::survey::{language, lexer};

/// `name line+lines` of every function, in the order they begin.
fn check(path: &str, source: &str, expected: &[&str]) {
    let language = language::of(path);
    let kinds = lexer::kinds(source.as_bytes(), &language);
    let mut found = find(path, source.as_bytes(), &kinds, &language);
    found.sort_by_key(|function| function.line);
    let shown: Vec<String> = found.iter().map(|f| format!("{} {}+{}", f.name, f.line, f.lines)).collect();
    assert_eq!(shown, expected, "{path}: {source}");
}

#[test]
fn rust_functions_go_from_their_name_to_their_closing_brace() {
    check(
        "a.rs",
        "struct A { x: u8 }\nimpl A {\n  pub fn new<T>(x: T) -> Self\n  where T: Into<u8>,\n  {\n    \
         let f = |y| { y };\n    A { x: x.into() } // }\n  }\n}\ntrait B { fn no(&self); fn yes(&self) { \"{\"; } }\n",
        &["new 3+6", "yes 10+1"],
    );
}

#[test]
fn script_functions_have_a_name_of_their_own_or_the_one_they_are_given() {
    check(
        "a.ts",
        "export function plain({ a, b }: P) {\n  if (a) { b() }\n}\nconst arrow = async (x) => {\n  return x\n}\n\
         class C {\n  static async method<T>(x: T): Promise<T> {\n    for (;;) { }\n  }\n  get value() { return 1 }\n}\n\
         list.map((x) => {\n  x\n})\nconst o = { field: function () {\n  } }\n",
        &["plain 1+3", "arrow 4+3", "method 8+3", "value 11+1", "field 16+2"],
    );
}

#[test]
fn go_functions_may_have_a_receiver_and_inline_types() {
    check(
        "a.go",
        "func plain(x interface{}) interface{} {\n\treturn x\n}\nfunc (s *S) Method(f func(int) int) (int, error) {\n\
         \tgo func() {\n\t}()\n\tif x := (T{}); x.ok {\n\t}\n}\ntype S struct {\n}\n",
        &["plain 1+3", "Method 4+6"],
    );
}

#[test]
fn java_and_c_functions_follow_a_type() {
    check(
        "A.java",
        "class A {\n  @Over(x = 1)\n  public List<String> of(int a) throws E, F {\n    try (R r = open()) {\n    } \
         catch (E e) {\n    }\n    new Thread() {\n      public void run() { }\n    };\n  }\n}\n",
        &["of 3+8", "run 8+1"],
    );
    check(
        "a.c",
        "static int\nmain(int argc, char **argv)\n{\n  while (1) {\n  }\n  return 0;\n}\nstruct s { int x; };\n\
         int a[] = {1, 2};\nchar *f(void) { return \"}\"; }\n",
        &["main 2+6", "f 10+1"],
    );
}

#[test]
fn python_functions_end_where_their_indentation_does() {
    check(
        "a.py",
        "class A:\n    @x\n    async def one(\n        self,\n    ):\n        '''doc\nat the margin\n'''\n        def two():\n\
         \x20           pass\n\n        # tail\n        return 1\n\n    y = 2\ndef three(): pass\n",
        &["one 3+11", "two 9+2", "three 16+1"],
    );
}

#[test]
fn broken_code_ends_without_a_finding_or_a_panic() {
    for source in ["}}}}", "fn a( {", "{{{{", "fn {", ") {", "func ( {", "=> {", "(a) => {", "def", "async"] {
        for path in ["a.rs", "a.go", "a.ts", "a.c", "a.py"] {
            let language = language::of(path);
            let kinds = lexer::kinds(source.as_bytes(), &language);
            find(path, source.as_bytes(), &kinds, &language);
        }
    }
}
