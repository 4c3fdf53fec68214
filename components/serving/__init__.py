"""The dream as a server: many sessions over one dream, in the protocol that other trainers speak
(OpenEnv).
"""
