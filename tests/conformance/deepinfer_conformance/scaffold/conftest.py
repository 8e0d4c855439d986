"""The templates hold tests of packages that are still to be written: none of them is a test of this one."""

collect_ignore = ["templates"]
