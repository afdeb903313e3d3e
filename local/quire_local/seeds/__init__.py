"""The command line and configuration file of the program that quire grew from.

    quire --input "Hello, world!" --max-tokens 50        one answer
    quire --serve --config config.json                   a server on port 3000

    settings   the parameters, their defaults and ranges
    file       config.json, every key checked
    mapping    what each parameter is here
    command    the two commands

Nothing outside this package knows these names. docs/reference/seeds.md is the mapping in words.
"""
