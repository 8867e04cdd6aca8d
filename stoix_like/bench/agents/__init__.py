"""How fast agents write and learn, beside loops on the host as public trainers have them. Imports timing."""
