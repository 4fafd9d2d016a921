"""The imports of plugin authors: roles, types, operations, options, facts, events, errors.

`fedplug` re-exports it, so write `import fedplug`. Nothing here runs a protocol or reads a file.
It imports no other room; for annotations it names recipes and cohorts, which its methods are handed.
"""
