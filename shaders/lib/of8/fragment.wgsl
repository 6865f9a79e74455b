// 8x8 cooperative matrices: W and x in f16, y in f32.

enable f16;
enable wgpu_cooperative_matrix;

const SIDE = 8u;

alias FragmentW = coop_mat8x8<f16, A>;
alias FragmentX = coop_mat8x8<f16, B>;
alias FragmentY = coop_mat8x8<f32, C>;
