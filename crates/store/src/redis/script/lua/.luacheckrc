-- What luacheck has to know of the scripts: they are Lua 5.1 with what Redis adds.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "bit", "cjson", "cmsgpack", "struct" }
max_line_length = 120
-- The functions of a sliding log have parameters with the names that their callers use.
ignore = { "431" }
