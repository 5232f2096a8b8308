"""What two starts differ in: one that went well and one that did not, usually."""
